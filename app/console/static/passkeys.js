// Passkeys: asks the browser for one, or to make one, and sends its answer with the form.

const form = document.querySelector("form[data-passkey]");
const options = JSON.parse(form.dataset.passkey);
const button = form.querySelector("[data-passkey-button]");
const problem = form.querySelector("[data-passkey-problem]");
const making = "pubKeyCredParams" in options;
const domain = making ? options.rp.id : options.rpId;

// A passkey belongs to a domain: opened by a number, the console can have none.
const named = location.hostname === domain || location.hostname.endsWith(`.${domain}`);

// The challenge counts for ten minutes: a page that was left open gets another one.
const FRESH_MS = 540_000;
setTimeout(() => {
  const typed = [...form.querySelectorAll("input:not([type=hidden])")];
  if (typed.every((each) => each.value === each.defaultValue)) location.replace(location.href);
}, FRESH_MS);

if (named && window.PublicKeyCredential?.parseRequestOptionsFromJSON) {
  problem.hidden = true;
  button.hidden = false;
  button.addEventListener("click", async () => {
    if (!form.reportValidity()) return;
    problem.hidden = true;
    button.disabled = true;
    try {
      const found = making
        ? await navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(options) })
        : await navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(options) });
      form.elements.passkey.value = JSON.stringify(found.toJSON());
      form.requestSubmit();
    } catch { problem.hidden = false; } // the person left it, or there is none
    button.disabled = false;
  });
}

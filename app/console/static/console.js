// All script of the console. Without it every page works; with it rows come live, keys move, and a
// link's token leaves the address before anything else is done.
"use strict";

// What a page asks for without a person is no use of the session, which ends by itself when idle.
const BY_ITSELF = { headers: { Accept: "text/html", "Tallyhook-By-Itself": "1" } };

// --- links: what stands behind # is posted, and never stays in the history ---------------------

const linked = document.querySelector("form[data-from-fragment]");
if (linked && location.hash.length > 1) {
  linked.elements.token.value = decodeURIComponent(location.hash.slice(1));
  history.replaceState(null, "", location.pathname);
  linked.submit();
}

// --- forms: the second click of a double one does not take the place of the first one's answer ----

const TWICE_MS = 3000;
document.addEventListener("submit", (event) => {
  const form = event.target, now = Date.now();
  if (form.method !== "post") return; // a dialog's, or a search by address
  if (now - (form.sentAt ?? -TWICE_MS) < TWICE_MS) event.preventDefault();
  else form.sentAt = now;
});

// --- live: one stream for all tabs; whoever hears of news loads the rows of the page again -----

const badge = document.getElementById("live");
if (badge && document.body.dataset.live !== undefined) {
  const said = document.getElementById("live-said");
  const pause = document.getElementById("live-pause");
  const MOST_OFTEN_MS = 1500;
  let head = null, loaded = null, timer = null, paused = false, last = 0;

  // What is typed or chosen in a part, and not sent yet, would be lost with it.
  const changed = (each) => each.matches("select")
    ? each.selectedIndex !== Math.max(0, [...each.options].findIndex((option) => option.defaultSelected))
    : each.value !== each.defaultValue;
  const typing = () => [...document.querySelectorAll("[data-part] :is(select, textarea, input)")]
    .some((each) => !["checkbox", "hidden"].includes(each.type) && (each === document.activeElement || changed(each)));

  const show = (word, away) => { said.textContent = word; badge.classList.toggle("away", away); };
  const load = async () => {
    timer = null;
    if (paused || document.hidden || head === loaded) return;
    if (typing()) { show("waits while you type", true); soon(MOST_OFTEN_MS); return; }
    last = Date.now();
    const wanted = head;
    try {
      const answer = await fetch(location.href, BY_ITSELF);
      if (answer.redirected || answer.status === 401 || answer.status === 403) { location.reload(); return; }
      if (!answer.ok) throw new Error("not now");
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const part of page.querySelectorAll("[data-part]")) {
        const old = document.querySelector(`[data-part="${part.dataset.part}"]`);
        // A badge within the part would lose its button.
        part.querySelector("#live")?.replaceWith(badge);
        const focused = document.activeElement?.closest?.("[data-part] a[href]")?.getAttribute("href");
        const chosen = old ? [...old.querySelectorAll("input:checked")].map((each) => each.value) : [];
        if (old) old.replaceChildren(...part.childNodes);
        for (const box of old?.querySelectorAll("input[type=checkbox]") ?? []) box.checked = chosen.includes(box.value);
        if (focused) document.querySelector(`[data-part] a[href="${CSS.escape(focused)}"]`)?.focus();
      }
      loaded = wanted;
      show("live", false);
    } catch { show("waiting for the console", true); soon(5000); }
    if (head !== loaded) soon(MOST_OFTEN_MS);
  };
  const soon = (wait) => { timer ??= setTimeout(load, wait); };
  const news = (value) => {
    if (head === null) { head = loaded = value; return; }
    head = value;
    if (head !== loaded) soon(Math.max(0, MOST_OFTEN_MS - (Date.now() - last)));
  };

  // The stream is refused, as once the session has ended: what is on the screen stays no longer.
  const ended = async () => {
    try { if ((await fetch(location.href, BY_ITSELF)).redirected) location.reload(); } catch { /* away */ }
  };

  const channel = new BroadcastChannel("tallyhook-live");
  channel.onmessage = (event) => event.data === null ? null : news(event.data);
  const listen = () => new Promise(() => {
    const stream = new EventSource("/live");
    stream.onopen = () => show(paused ? "paused" : "live", false);
    stream.onmessage = (event) => { news(event.data); channel.postMessage(event.data); };
    stream.onerror = () => {
      show("waiting for the console", true);
      if (stream.readyState === EventSource.CLOSED) ended();
    };
    // A tab that was opened since has heard nothing yet.
    setInterval(() => { if (head !== null) channel.postMessage(head); }, 2000);
  });
  // One tab holds the lock and the stream; when it is closed, another gets both.
  navigator.locks.request("tallyhook-live", listen);

  document.addEventListener("visibilitychange", () => soon(0));
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = paused ? "Go on" : "Pause";
    show(paused ? "paused" : "live", paused);
    soon(0);
  });
  badge.hidden = false;
}

// --- what goes on meanwhile: looked at again, for where it stands now -----------------------------

const AGAIN_MS = 3000;
const again = async () => {
  const state = (page) => page.querySelector("[data-again]")?.textContent;
  try {
    const answer = await fetch(location.href, BY_ITSELF);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (answer.redirected || state(page) !== state(document)) { location.reload(); return; }
  } catch { /* the console is away: it is looked at again */ }
  setTimeout(again, AGAIN_MS);
};
if (document.querySelector("[data-again]")) setTimeout(again, AGAIN_MS);

// --- type-ahead: orders of which the reference begins with what is typed ---------------------------

const typed = document.getElementById("text");
const beginning = document.getElementById("beginning");
if (typed && beginning) {
  const LEAST = 2, PAUSE_MS = 250;
  let asking = null, later = null;
  const suggest = async () => {
    asking = new AbortController();
    try {
      // Posted, as the search is: what is typed may be a phone number, and stands in no address.
      const body = new URLSearchParams({ text: typed.value });
      const answer = await fetch("/find/beginning", { method: "POST", body, signal: asking.signal });
      const found = answer.ok ? (await answer.json()).orders : [];
      beginning.replaceChildren(...found.map((each) => new Option(each, each)));
    } catch { beginning.replaceChildren(); } // more was typed, or the console is away: it suggests nothing
  };
  typed.addEventListener("input", () => {
    clearTimeout(later);
    asking?.abort();
    if (typed.value.length >= LEAST) later = setTimeout(suggest, PAUSE_MS);
    else beginning.replaceChildren();
  });
}

// --- keys: can be switched off ------------------------------------------------------------------

const keys = document.getElementById("keys");
if (keys) {
  const on = document.getElementById("keys-on");
  const shown = document.getElementById("keys-shown");
  on.checked = localStorage.getItem("keys") !== "off";
  on.addEventListener("change", () => localStorage.setItem("keys", on.checked ? "on" : "off"));
  shown.hidden = false;
  shown.addEventListener("click", () => keys.showModal());

  const move = (step) => {
    const rows = [...document.querySelectorAll("a.row")];
    const at = rows.indexOf(document.activeElement);
    const next = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : at + step];
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  };
  const does = {
    "/": () => document.getElementById("text")?.focus(),
    j: () => move(1),
    k: () => move(-1),
    "?": () => keys.showModal(),
  };
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, select, textarea, dialog");
    if (!on.checked || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const act = does[event.key];
    if (act) { event.preventDefault(); act(); }
  });
}

// A second verifier of evidence bundles, written from app/evidence/README.md alone, with what a
// browser has: WebCrypto and BigInt. It knows steps 1 to 9; the others take the engine.
//
//   await verify(bytes, now)   the step that failed and why, as "inclusion: …"; "" where all hold
//
// `bytes` is a Uint8Array, `now` the verifier's clock in microseconds since 1970 as a BigInt.

"use strict";

class Wrong extends Error {}
const fail = (why) => { throw new Wrong(why); };
const need = (holds, why) => holds || fail(why);

// --- bytes, hashes, canonical JSON ---------------------------------------------------------------

const utf8 = new TextEncoder();
const text = (bytes) => {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return fail("a text is not UTF-8");
  }
};
const joined = (...parts) => new Uint8Array(parts.flatMap((each) => [...each]));
const hex = (bytes) => [...bytes].map((each) => each.toString(16).padStart(2, "0")).join("");
const bytesOf = (digits) => {
  need(typeof digits === "string" && /^([0-9a-f]{2})*$/.test(digits), "a text is not hex");
  return new Uint8Array((digits.match(/../g) || []).map((each) => parseInt(each, 16)));
};
const base64 = (line) => {
  try {
    const raw = atob(line);
    need(btoa(raw) === line, "a line has another base64");
    return Uint8Array.from(raw, (each) => each.charCodeAt(0));
  } catch (error) {
    return error instanceof Wrong ? fail(error.message) : fail("a line is not base64");
  }
};
const equal = (one, other) => one.length === other.length && one.every((each, n) => each === other[n]);
const sha256 = async (bytes) => new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
const digest = async (bytes) => hex(await sha256(bytes));

function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value === null || typeof value !== "object") {
    need(typeof value !== "number" || Number.isSafeInteger(value), "a number is not whole");
    return JSON.stringify(value);
  }
  const members = Object.keys(value).sort(); // by UTF-16 code units, as RFC 8785 has it
  return `{${members.map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`).join(",")}}`;
}
const parsed = (written, name) => {
  let found;
  try {
    found = JSON.parse(written);
  } catch {
    fail(`${name} is not JSON`);
  }
  need(canonical(found) === written, `${name} is not canonical`);
  return found;
};

const MASK = (1n << 64n) - 1n;
const IV = [
  0x6a09e667f3bcc908n, 0xbb67ae8584caa73bn, 0x3c6ef372fe94f82bn, 0xa54ff53a5f1d36f1n,
  0x510e527fade682d1n, 0x9b05688c2b3e6c1fn, 0x1f83d9abfb41bd6bn, 0x5be0cd19137e2179n,
];
const SIGMA = [
  "0123456789abcdef", "ea489fd61c02b753", "b8c052fdae367194", "7931dcbe265a40f8",
  "905724afe1bc683d", "2c6a0b834d75fe19", "c51fed4a0763928b", "db7ec13950f4862a",
  "6fe9b308c2d714a5", "a2847615fb9e3cd0", "0123456789abcdef", "ea489fd61c02b753",
].map((row) => [...row].map((each) => parseInt(each, 16)));
const LANES = [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15],
  [0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14]];

function blake2b(data) { // RFC 7693, 64 bytes, no key
  const state = [...IV];
  state[0] ^= 0x01010040n;
  const blocks = Math.max(1, Math.ceil(data.length / 128));
  const padded = new Uint8Array(blocks * 128);
  padded.set(data);
  const words = new DataView(padded.buffer);
  const turned = (value, by) => ((value >> by) | (value << (64n - by))) & MASK;
  for (let block = 0; block < blocks; block++) {
    const last = block === blocks - 1;
    const v = [...state, ...IV];
    v[12] ^= BigInt(last ? data.length : (block + 1) * 128);
    if (last) v[14] ^= MASK;
    const m = [...Array(16).keys()].map((n) => words.getBigUint64(block * 128 + n * 8, true));
    for (const row of SIGMA) {
      LANES.forEach(([a, b, c, d], n) => {
        v[a] = (v[a] + v[b] + m[row[2 * n]]) & MASK;
        v[d] = turned(v[d] ^ v[a], 32n);
        v[c] = (v[c] + v[d]) & MASK;
        v[b] = turned(v[b] ^ v[c], 24n);
        v[a] = (v[a] + v[b] + m[row[2 * n + 1]]) & MASK;
        v[d] = turned(v[d] ^ v[a], 16n);
        v[c] = (v[c] + v[d]) & MASK;
        v[b] = turned(v[b] ^ v[c], 63n);
      });
    }
    state.forEach((each, n) => { state[n] = each ^ v[n] ^ v[n + 8]; });
  }
  const out = new DataView(new ArrayBuffer(64));
  state.forEach((each, n) => out.setBigUint64(n * 8, each, true));
  return new Uint8Array(out.buffer);
}

async function signed(key, signature, bytes) {
  const known = await crypto.subtle.importKey("raw", key, "Ed25519", false, ["verify"]);
  return crypto.subtle.verify("Ed25519", known, signature, bytes);
}

// --- 1 archive -----------------------------------------------------------------------------------

const TABLE = [...Array(256).keys()].map((byte) => {
  let found = byte;
  for (let bit = 0; bit < 8; bit++) found = found & 1 ? (found >>> 1) ^ 0xedb88320 : found >>> 1;
  return found >>> 0;
});
const crc32 = (bytes) =>
  (bytes.reduce((found, each) => TABLE[(found ^ each) & 255] ^ (found >>> 8), -1) ^ -1) >>> 0;
const little = (...fields) => new Uint8Array(fields.flatMap(([value, size]) =>
  [...Array(size).keys()].map((n) => Math.floor(value / 2 ** (8 * n)) % 256)));

function unpacked(archive) {
  const members = new Map();
  const directory = [];
  const view = new DataView(archive.buffer, archive.byteOffset, archive.byteLength);
  let at = 0, last = "";
  while (at + 30 <= archive.length && view.getUint32(at, true) === 0x04034b50) {
    const size = view.getUint32(at + 22, true), label = view.getUint16(at + 26, true);
    const name = String.fromCharCode(...archive.subarray(at + 30, at + 30 + label));
    need(/^[A-Za-z][A-Za-z0-9_.-]*$/.test(name) && name > last, `${name} is no name, or out of order`);
    const data = archive.slice(at + 30 + label, at + 30 + label + size);
    need(data.length === size, `${name} is cut short`);
    const shared = [[20, 2], [0, 2], [0, 2], [0, 2], [0x21, 2], [crc32(data), 4], [size, 4],
      [size, 4], [label, 2], [0, 2]];
    const head = joined(little([0x04034b50, 4], ...shared), utf8.encode(name));
    need(equal(head, archive.subarray(at, at + 30 + label)), `${name} has another header`);
    directory.push(joined(
      little([0x02014b50, 4], [0x0314, 2], ...shared, [0, 2], [0, 2], [0, 2], [0x81a40000, 4], [at, 4]),
      utf8.encode(name),
    ));
    members.set(name, data);
    at += 30 + label + size;
    last = name;
  }
  const listed = joined(...directory);
  const end = little([0x06054b50, 4], [0, 2], [0, 2], [members.size, 2], [members.size, 2],
    [listed.length, 4], [at, 4], [0, 2]);
  need(equal(joined(listed, end), archive.subarray(at)), "the directory is another");
  return members;
}

// --- 2, 3 the manifest and the form of documents ----------------------------------------------------

const only = (found, names, where) => {
  need(found !== null && typeof found === "object" && !Array.isArray(found), `${where} is no object`);
  const there = Object.keys(found), may = names.split(" ");
  for (const name of may) need(name.endsWith("?") || there.includes(name), `${where} lacks ${name}`);
  for (const name of there) {
    need(may.includes(name) || may.includes(`${name}?`), `${where} has a member ${name}`);
  }
  return found;
};
const INSTANT = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.((?!000)\d{3}|\d{3}(?!000)\d{3}))?Z$/;
const micros = (at) => {
  const found = typeof at === "string" ? INSTANT.exec(at) : null;
  const seconds = found ? Date.parse(`${found[1]}Z`) : NaN;
  need(!Number.isNaN(seconds), "an instant is not in form");
  return BigInt(seconds) * 1000n + BigInt((found[2] || "").padEnd(6, "0"));
};
const whole = (value, where) => need(Number.isSafeInteger(value) && value >= 0, `${where} is no count`);
const string = (value, where) => need(typeof value === "string", `${where} is no text`);
const DECIMALS = Object.fromEntries([
  ["BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF", 0],
  ["BHD IQD JOD KWD LYD OMR TND", 3], ["CLF UYW", 4],
].flatMap(([codes, decimals]) => codes.split(" ").map((code) => [code, decimals])));

function moneyIsWritten(value) { // wherever an amount stands
  if (Array.isArray(value)) value.forEach(moneyIsWritten);
  if (value === null || typeof value !== "object" || Array.isArray(value)) return;
  if ("amount" in value && "currency" in value) {
    const decimals = DECIMALS[value.currency] ?? 2;
    const form = new RegExp(`^-?(0|[1-9]\\d*)${decimals ? `\\.\\d{${decimals}}` : ""}$`);
    need(typeof value.amount === "string" && form.test(value.amount), "an amount has other decimals");
  }
  Object.values(value).forEach(moneyIsWritten);
}

const listed = (found, where) => {
  only(found, "sha256 size", where);
  need(/^[0-9a-f]{64}$/.test(found.sha256), `${where} has no digest`);
  whole(found.size, where);
};
const part = (found, where) => {
  if (found === null) return;
  only(found, "file sha256 size", where);
  string(found.file, where);
  listed({ sha256: found.sha256, size: found.size }, where);
};
const deed = (found) => {
  only(found, "number at who role action subject reason facts", "attachments.json");
  whole(found.number, "an audit entry");
};
const FORMS = {
  "manifest.json": (found) => {
    only(found, "format release program order as_of redacted files left_out", "manifest.json");
    need(found.format === "tallyhook evidence 2", "the format is another");
    need(typeof found.redacted === "boolean", "it does not say whether it is redacted");
    for (const each of [found.files, found.left_out]) {
      Object.entries(each).forEach(([name, said]) => listed(said, name));
    }
  },
  "log.json": (found) => {
    only(found, "keys endorsements origins? leaves parts unsealed order tree", "log.json");
    for (const each of found.leaves) {
      only(each, "id index leaf proof", "a leaf");
      whole(each.index, "a leaf");
    }
    for (const parts of Object.values(found.parts)) {
      for (const each of Object.values(parts)) only(each, "salt" in each ? "salt" : "hash", "a part");
    }
    for (const each of found.origins || []) {
      only(each, "log leaves", "an origin");
      if (each.leaves !== null) whole(each.leaves, "an origin");
    }
    for (const each of found.keys) need(/^[0-9a-f]{64}$/.test(each), "an earlier key is no key");
    if (found.order) only(found.order, "commitment key", "the order's name");
    if (found.tree) only(found.tree, "leaf leaves last path", "the tree");
  },
  "history.json": (found) => {
    only(found, "order as_of policy records deliveries", "history.json");
    for (const each of found.deliveries) {
      only(each, "delivery_id received_at event again?", "a delivery");
      for (const pair of each.again || []) {
        need(pair.length === 2 && pair.every((one) => typeof one === "string"), "again is no pairs");
      }
    }
  },
  "delivery": (found, name) => {
    only(found, "delivery received_at source verdict problem method address sha256 size body whole " +
      "headers signed headers_shown signature let_go_at", name);
    only(found.signature, "scheme where over key signed_at age_at_arrival sentence", name);
    whole(found.size, name);
    for (const each of ["source", "verdict", "method", "address"]) string(found[each], name);
    for (const each of ["body", "whole", "headers", "signed"]) part(found[each], name);
    for (const each of found.headers_shown) need(each.length === 2, `${name} has no pairs of headers`);
  },
  "attachments.json": (found) => {
    for (const each of found) {
      only(each, "attached removed content details", "attachments.json");
      deed(each.attached);
      if (each.removed) deed(each.removed);
      part(each.content, "attachments.json");
      part(each.details, "attachments.json");
    }
  },
  "sources.json": (found) => {
    for (const each of found) only(each, "source profile file orders link_by captures vouchers", "a source");
  },
  "revisions.json": (found) => {
    for (const each of found) {
      only(each, "seq at outcome fulfillable substance before before_fulfillable because", "a revision");
      whole(each.seq, "a revision");
      need(typeof each.fulfillable === "boolean", "a revision says neither true nor false");
    }
  },
};

// --- the steps -----------------------------------------------------------------------------------

async function verify(archive, now) {
  let step = "";
  const log = [];
  try {
    step = "archive";
    const members = unpacked(archive);

    step = "manifest";
    need(members.has("manifest.json") && members.has("manifest.json.minisig"), "no manifest");
    const manifest = parsed(text(members.get("manifest.json")), "manifest.json");
    FORMS["manifest.json"](manifest);
    const names = [...members.keys()].filter((each) => !/^manifest\.json(\.minisig)?$/.test(each));
    need(canonical(names.sort()) === canonical(Object.keys(manifest.files).sort()), "other files are here");
    const asOf = micros(manifest.as_of);
    need(asOf <= now + 300_000_000n, "it is of an instant to come");

    step = "digests";
    const documents = new Map();
    for (const name of names) {
      const data = members.get(name), said = manifest.files[name];
      need(said.size === data.length && said.sha256 === await digest(data), `${name} is another file`);
      if (!name.endsWith(".json")) continue;
      const found = parsed(text(data), name);
      moneyIsWritten(found);
      const form = FORMS[name.startsWith("delivery-") ? "delivery" : name];
      if (form) form(found, name);
      documents.set(name, found);
    }
    const doc = (name) => documents.get(name) ?? fail(`${name} is missing`);

    step = "signature";
    const key = await signature(members);

    step = "deliveries";
    const known = { ...manifest.files, ...manifest.left_out };
    const history = doc("history.json"), exhibits = documents.get("attachments.json") || [];
    deliveriesFit(manifest, known, history, doc, documents);
    for (const each of history.deliveries) {
      asKept(doc(`delivery-${each.delivery_id}.json`), members);
    }
    for (const each of doc("sessions.json")) {
      const file = `record-${each.record_id}.details`, kept = members.get(file);
      need(file in manifest.left_out || each.details === (kept ? text(kept) : null), "another answer");
    }
    exhibitsFit(manifest, known, exhibits);

    step = "inclusion";
    const things = thingsOf(history, doc, known, exhibits);
    const moved = redated(history);
    const sealed = await included(members, doc("log.json"), things, asOf, moved);

    step = "readings";
    const late = new Set(doc("log.json").unsealed), read = new Map();
    for (const [name, { leaf }] of sealed) {
      if (leaf.delivery) read.set(leaf.delivery, [...(read.get(leaf.delivery) || []), name]);
    }
    for (const [name, thing] of things) {
      if (late.has(name)) continue;
      const own = [name, ...(read.get(name) || [])];
      const opened = own.filter((each) => each in doc("log.json").parts);
      need(opened.length === 1, `of the leaves of ${name} not one is opened`);
      await partsFit(thing, sealed.get(opened[0]).leaf, doc("log.json").parts[opened[0]], manifest);
    }

    step = "completeness";
    await complete(manifest, doc("log.json"), things, sealed, asOf);

    step = "checkpoint";
    await checkpoint(members, doc("log.json"), key);
    return log.join("\n");
  } catch (error) {
    return `${step}: ${error.message}`;
  }
}

async function signature(members) {
  const key = base64(text(members.get("evidence-key.pub")).split("\n")[1]).slice(10);
  const pem = `-----BEGIN PUBLIC KEY-----\n${btoa(String.fromCharCode(
    ...bytesOf("302a300506032b6570032100"), ...key))}\n-----END PUBLIC KEY-----\n`;
  need(text(members.get("evidence-key.pem")) === pem, "the two forms of the key differ");
  const lines = text(members.get("manifest.json.minisig")).split("\n");
  const raw = base64(lines[1]), comment = "trusted comment: ";
  const first = "untrusted comment: signature over the manifest of an evidence bundle";
  need(lines.length === 5 && lines[0] === first && lines[2].startsWith(comment), "the signature has not its four lines");
  need(raw.length === 74 && raw[0] === 69 && raw[1] === 68, "the signature is of another kind");
  need(await signed(key, raw.slice(10), blake2b(members.get("manifest.json"))), "not signed");
  const said = joined(raw.slice(10), utf8.encode(lines[2].slice(comment.length)));
  need(await signed(key, base64(lines[3]), said), "the comment is not signed");
  return key;
}

const fits = (known, said, what) => {
  const file = known[said.file];
  need(file && file.sha256 === said.sha256 && file.size === said.size, `${what} is another file`);
};

const ALWAYS = ("README.txt attachments.json books.json checkpoint.txt evidence-key.pem " +
  "evidence-key.pub explanation.txt heard.json history.json ledger.json log.json report.html " +
  "revisions.json sessions.json sources.json times.json verify.py").split(" ");

function deliveriesFit(manifest, known, history, doc, documents) {
  need(history.order === manifest.order && history.as_of === manifest.as_of, "another order or instant");
  const heard = history.deliveries.map((each) => `delivery-${each.delivery_id}.json`).sort();
  const there = [...documents.keys()].filter((each) => each.startsWith("delivery-")).sort();
  need(canonical(heard) === canonical(there), "the deliveries of the history are others");
  const may = new Set(), shown = new Set(ALWAYS);
  doc("sources.json").forEach((_, n) => shown.add(`profile-${n + 1}.toml`));
  for (const each of history.deliveries) {
    const name = `delivery-${each.delivery_id}`, stated = doc(`${name}.json`);
    need(stated.delivery === each.delivery_id && stated.received_at === each.received_at, `${name}: two ways`);
    need(stated.sha256 === each.event.digest, `${name} has another body`);
    [[each.delivery_id, each.received_at], ...(each.again || [])].reduce((before, [id, at]) => {
      const [was, now] = [micros(before[1]), micros(at)];
      need(was < now || (was === now && before[0] < id), `${id} repeats what came later`);
      return [id, at];
    });
    shown.add(`${name}.json`).add(`key-${stated.signature.key}.pem`);
    for (const part of ["body", "whole", "headers", "signed"]) {
      if (!stated[part]) continue;
      need(stated[part].file === `${name}.${part}`, `${name} has a file of another name`);
      fits(known, stated[part], name);
      may.add(stated[part].file);
    }
    if (stated.body && stated.size) need(stated.body.sha256 === stated.sha256, `${name} has another body`);
  }
  for (const name of Object.keys(known)) {
    need(!/^delivery-.*\.(body|whole|headers|signed)$/.test(name) || may.has(name), `${name} is nobody's`);
    need(!/^record-/.test(name) || history.records.some((each) => name === `record-${each.record_id}.details`),
      `${name} is nobody's`);
    const personal = /^(delivery-.*\.(body|whole|headers|signed)|record-.*|attachment-.*)$/.test(name);
    need(personal || shown.has(name), `nothing here refers to ${name}`);
    need(!(name in manifest.left_out) || (manifest.redacted && personal), `${name} is left out`);
    need(!(name in manifest.files && personal && manifest.redacted), `${name} is here in a redacted bundle`);
  }
  const sessions = history.records.filter((each) => each.kind.startsWith("session_"));
  const listed = doc("sessions.json").map(({ details, ...record }) => canonical(record));
  need(canonical(listed.sort()) === canonical(sessions.map(canonical).sort()), "sessions.json says otherwise");
}

function asKept(stated, members) {
  const kept = stated.headers && members.get(stated.headers.file);
  if (!kept) return;
  const lines = text(kept).split("\n").filter(Boolean).map((line) => {
    const at = line.indexOf(": ");
    return at < 0 ? [line, ""] : [line.slice(0, at), line.slice(at + 2)];
  });
  const method = lines.find(([name]) => name === ":method"), shown = stated.headers_shown;
  const own = lines.filter(([name]) => name !== ":method" && name !== ":url");
  const same = own.length === shown.length && own.every(([name, value], n) =>
    shown[n][0] === name && (shown[n][1] === value || shown[n][1].includes("\u2022")));
  need(stated.method === (method ? method[1] : "POST") && same, "another method or other headers");
}

function exhibitsFit(manifest, known, exhibits) {
  for (const each of exhibits) {
    const { facts } = each.attached;
    const { attached, removed } = each;
    const ours = facts.about !== "order" || attached.subject === manifest.order;
    need(attached.action === "attached" && ours, "an exhibit was not attached");
    need(!removed || (removed.action === "detached" && removed.facts.attachment === facts.attachment),
      "an exhibit was not removed");
    need(!each.content === !each.details, "an exhibit is here in part");
    if (each.content) need(each.content.size === facts.size, "an exhibit is of another size");
    if (each.removed) need(!each.content && !each.details, "a removed exhibit is here");
    for (const [part, named] of [["content", "sha256"], ["details", "details"]]) {
      if (!each[part]) continue;
      need(each[part].sha256 === facts[named], `an exhibit is another file than was attached`);
      fits(known, each[part], `an exhibit`);
    }
  }
}

const PARTS = {
  delivery: "agreement capture event_id movement order payment reason session suggested",
  record: "author key order payment reason replaces session",
  revision: "because substance",
  deed: "facts reason subject who",
};

function thingsOf(history, doc, known, exhibits) {
  const things = new Map();
  const add = (name, kind, id, at, said, more = {}) => {
    need(!things.has(name), `two things have the name ${name}`);
    things.set(name, { kind, id, at: micros(at), said, more });
  };
  for (const each of history.deliveries) {
    const stated = doc(`delivery-${each.delivery_id}.json`);
    add(each.delivery_id, "delivery", each.delivery_id, each.received_at, each.event, {
      source: stated.source, size: stated.size, body: stated.sha256,
      headers: stated.headers && stated.headers.sha256, whole: stated.whole && stated.whole.sha256,
    });
    const more = { source: stated.source, size: stated.size, body: stated.sha256 };
    for (const [id, at] of each.again || []) add(id, "delivery", id, at, each.event, more);
  }
  for (const each of history.records) {
    const details = known[`record-${each.record_id}.details`];
    const said = details ? { ...each, details: details.sha256 } : each;
    add(each.record_id, "record", each.record_id, each.recorded_at, said);
  }
  for (const each of doc("revisions.json")) add(`revision:${each.seq}`, "revision", each.seq, each.at, each);
  for (const each of exhibits.flatMap((one) => [one.attached, one.removed]).filter(Boolean)) {
    add(`deed:${each.number}`, "deed", each.number, each.at, each);
  }
  return things;
}

function redated(history) { // from when each thing counts that a clock that was ahead dated
  const found = new Map();
  for (const each of history.records.filter((one) => one.kind === "redated")) {
    const at = micros(each.at);
    need(at === micros(each.recorded_at) && at < micros(each.expires_at), `${each.record_id} is no redating`);
    found.set(each.replaces, at);
  }
  return found;
}

const MEMBERS = {
  delivery: "kind salt id of? nth? after? at parts source size body headers whole",
  reading: "kind salt delivery of? nth? after? parts",
  record: "kind salt id of? nth? after? at parts",
  revision: "kind salt id of? nth? after? at parts",
  deed: "kind salt id of? nth? after? at parts",
  orders: "kind salt id at size root",
};

async function included(members, log, things, asOf, moved) {
  const lines = text(members.get("checkpoint.txt") || fail("no checkpoint")).split("\n");
  const size = Number(lines[1]), root = hex(base64(lines[2]));
  need(String(size) === lines[1] && log.leaves.length, "the checkpoint has no size, or no leaf is here");
  const sealed = new Map();
  const late = new Set(log.unsealed);
  let last = -1;
  for (const each of log.leaves) {
    const leaf = parsed(each.leaf, each.id);
    only(leaf, MEMBERS[leaf.kind] || fail("a leaf is of no kind"), each.id);
    const name = leaf.kind === "reading" ? `reading:${leaf.delivery}:${each.index}`
      : ["delivery", "record"].includes(leaf.kind) ? leaf.id : `${leaf.kind}:${leaf.id}`;
    need(name === each.id && !sealed.has(name) && each.index > last, `${each.id} is of something else`);
    need(/^[0-9a-f]{32}$/.test(leaf.salt), `${name} has no salt`);
    let found = await sha256(joined([0], utf8.encode(each.leaf)));
    let place = each.index, end = size - 1; // RFC 9162, 2.1.3.2
    need(place <= end, `${name} is beyond the checkpoint`);
    for (const step of each.proof.map(bytesOf)) {
      need(end > 0 && step.length === 32, `the proof of ${name} is too long`);
      const left = place % 2 === 1 || place === end;
      found = await sha256(left ? joined([1], step, found) : joined([1], found, step));
      if (left) while (place % 2 === 0 && place) { place >>= 1; end >>= 1; }
      place >>= 1;
      end >>= 1;
    }
    need(end === 0 && hex(found) === root, `${name} is not in the log`);
    sealed.set(name, { index: each.index, leaf });
    last = each.index;
  }
  for (const [name, thing] of things) {
    const counts = moved.get(name) ?? thing.at;
    need(counts <= asOf, `${name} came later than the bundle's instant`);
    if (late.has(name)) {
      need(!sealed.has(name) && asOf - counts <= 60_000_000n, `${name} should have been sealed`);
      continue;
    }
    const { leaf } = sealed.get(name) || fail(`${name} has no leaf`);
    need(leaf.kind === thing.kind && leaf.id === thing.id && BigInt(leaf.at) === thing.at, `${name}: otherwise`);
    for (const [member, said] of Object.entries(thing.more)) {
      const gone = member === "headers" && leaf[member] === null;
      const away = member === "headers" && said === null;
      need(gone || away || leaf[member] === said, `the leaf of ${name} says otherwise: ${member}`);
    }
  }
  for (const name of log.unsealed) need(things.has(name), `${name} is not here`);
  for (const name of Object.keys(log.parts)) {
    need(things.has(name.startsWith("reading:") ? name.split(":")[1] : name), `${name} is not here`);
  }
  return sealed;
}

async function partsFit(thing, leaf, opened, manifest) {
  const names = PARTS[thing.kind].split(" ").filter((name) => name in thing.said);
  const rest = Object.entries(thing.said).filter(([name]) => !names.includes(name));
  const values = { said: Object.fromEntries(rest) };
  for (const name of names) values[name] = thing.said[name];
  need(canonical(Object.keys(opened).sort()) === canonical(Object.keys(values).sort()), "other parts are opened");
  const commitments = {};
  for (const [name, value] of Object.entries(values)) {
    const { salt, hash } = opened[name];
    if (hash) {
      need(manifest.redacted && name !== "said" && canonical(value).includes("\u2022"), `${name} is hidden`);
      commitments[name] = hash;
    } else {
      commitments[name] = await digest(utf8.encode(canonical({ part: name, salt, value })));
    }
  }
  need(await digest(utf8.encode(canonical(commitments))) === leaf.parts, "the log says otherwise");
}

async function complete(manifest, log, things, sealed, asOf) {
  const all = [...sealed.entries()].sort((one, other) => one[1].index - other[1].index);
  const names = all.filter(([, { leaf }]) => leaf.kind === "revision").map(([, { leaf }]) => leaf.of);
  for (const of of new Set(names)) chain(of, all, things, asOf, sealed);
  if (!log.order) return need(!log.tree, "there is a tree of no order");
  const { commitment, key } = log.order;
  need(key || manifest.order.includes("\u2022"), "the key of the order's name is missing");
  if (key) {
    const secret = bytesOf(key);
    const known = await crypto.subtle.importKey("raw", secret, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
    const named = new Uint8Array(await crypto.subtle.sign("HMAC", known, utf8.encode(manifest.order)));
    need(hex(named) === commitment, "the key gives another name");
  }
  const own = chain(commitment, all, things, asOf, sealed);
  need(own.length || things.size === log.unsealed.length, "no entry has the order's name");
  if (own.length) {
    const [name, { leaf }] = own.at(-1);
    need(things.has(name) || BigInt(leaf.at || 0) <= asOf, `${name} came later than the bundle's instant`);
  }
  const day = (at) => at / 86_400_000_000n;
  if (!log.tree) {
    const first = own.length ? own[0][1].leaf.at : null;
    need(!own.length || (first && day(BigInt(first)) >= day(asOf)), "the tree of the day is missing");
    return;
  }
  const { leaf } = sealed.get(log.tree.leaf) || fail("the tree has no leaf");
  const entry = { last: log.tree.last, leaves: log.tree.leaves, of: commitment };
  let found = await sha256(joined([0], utf8.encode(canonical(entry)))), below = 256;
  const bits = BigInt(`0x${commitment}`);
  for (const [shared, other] of log.tree.path) {
    need(shared < below, "the path does not lead upwards");
    const one = (bits >> BigInt(255 - shared)) & 1n;
    found = await sha256(joined([1, shared], ...(one ? [bytesOf(other), found] : [found, bytesOf(other)])));
    below = shared;
  }
  need(leaf.kind === "orders" && hex(found) === leaf.root, "the entry does not lead to the root");
  const began = own.length && own[0][1].leaf.at;
  const fits = day(BigInt(leaf.at)) >= day(asOf) || (began && day(BigInt(began)) >= day(asOf));
  need(fits || !own.length, "the tree is of an earlier day");
  const counted = own.filter(([, each]) => each.index < leaf.size);
  need(counted.length === log.tree.leaves && counted.at(-1)[1].index === log.tree.last, "the tree counts others");
}

function chain(commitment, all, things, asOf, sealed) {
  const own = all.filter(([, { leaf }]) => leaf.of === commitment);
  const newest = new Map(all.map(([name, { leaf }]) => [leaf.delivery || name, leaf]));
  let before = null;
  own.forEach(([name, { index, leaf }], n) => {
    need(leaf.nth === n + 1 && leaf.after === before, `an entry before ${name} is missing`);
    before = index;
    const of = leaf.delivery || name;
    const later = newest.get(of);
    const came = sealed.has(of) && sealed.get(of).leaf.at;
    need(things.has(of) || BigInt(came || 0) > asOf || later.of !== commitment, `${of} is left out`);
  });
  return own;
}

async function checkpoint(members, log, key) {
  const lines = text(members.get("checkpoint.txt")).split("\n");
  const body = utf8.encode(`${lines.slice(0, 3).join("\n")}\n`), [origin] = lines;
  need(lines[3] === "", "the checkpoint has more lines");
  const keys = [hex(key)]; // and each from which endorsements lead to it
  for (let n = log.keys.length - 1; n > 0 && log.endorsements[n] && log.keys.at(-1) === hex(key); n--) {
    const said = utf8.encode(
      `tallyhook key endorsement 1\n${origin}\n${log.keys[n - 1]}\n${log.keys[n]}\n`);
    const raw = bytesOf(log.endorsements[n]);
    let holds = false;
    for (let at = 0; at < raw.length; at += 64) {
      holds ||= await signed(bytesOf(log.keys[n - 1]), raw.slice(at, at + 64), said);
    }
    if (!holds) break;
    keys.push(log.keys[n - 1]);
  }
  for (const each of keys) {
    const own = joined(utf8.encode(`${origin}\n`), [1], bytesOf(each));
    const id = (await digest(own)).slice(0, 8);
    for (const line of lines.slice(4).filter((one) => one.startsWith(`\u2014 ${origin} `))) {
      const raw = base64(line.split(" ")[2]);
      if (hex(raw.slice(0, 4)) !== id) continue;
      need(await signed(bytesOf(each), raw.slice(4), body), "the checkpoint is not signed");
      return;
    }
  }
  fail("no key of this log has signed the checkpoint");
}

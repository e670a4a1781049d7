// The memories of answers: those that are streamed, and in this browser's IndexedDB those of before a reload.
import {Memory} from "./memory.js";

const kStore = "memories", kMaxStored = 20;
const inPage = new Map();
const stored = new Set();  // keys in the database
const keyOf = (message, which) => `${message.id}/${which}`;

// A request of IndexedDB; undefined where there is none, such as in private windows.
let database;
function ask(mode, action) {
  database ??= new Promise((done) => {
    const request = indexedDB.open("palimpsest", 1);
    request.onupgradeneeded = () => request.result.createObjectStore(kStore);
    request.onsuccess = () => done(request.result);
    request.onerror = request.onblocked = () => done(null);
  }).catch(() => null);
  return database.then((open) => open && new Promise((done) => {
    const request = action(open.transaction(kStore, mode).objectStore(kStore));
    request.onsuccess = () => done(request.result);
    request.onerror = () => done(undefined);
  })).catch(() => undefined);
}

export const loadMemoryKeys = async () => (await ask("readonly", (store) => store.getAllKeys()) ?? []).forEach((key) => stored.add(key));

// For an answer that begins.
export function newMemory(message, which) {
  const memory = new Memory();
  inPage.set(keyOf(message, which), memory);
  return memory;
}

export const memoryOf = (message, which) => inPage.get(keyOf(message, which)) ?? null;
export const hasMemory = (message) => Boolean(memoryOf(message, 0)?.layout) || stored.has(keyOf(message, 0));

// From the database, if it is not in the page. What cannot be read is as if it had not been kept.
export async function fetchMemory(message, which) {
  const key = keyOf(message, which);
  if (inPage.has(key) || !stored.has(key)) return;
  const kept = await ask("readonly", (store) => store.get(key));
  if (kept?.layout && !inPage.has(key)) inPage.set(key, Object.assign(new Memory(), kept));
}

export async function keepMemory(message, which) {
  const key = keyOf(message, which), memory = inPage.get(key);
  if (!memory?.layout) return;
  await ask("readwrite", (store) => store.put({...memory}, key));
  stored.add(key);
  for (const old of [...stored].sort().slice(0, -kMaxStored)) dropStored(old);  // keys begin with the time
}

function dropStored(key) {
  stored.delete(key);
  ask("readwrite", (store) => store.delete(key));
}

export function dropMemories(messages) {
  for (const message of messages)
    for (let which = 0; which < (message.answers?.length ?? 0); ++which) {
      inPage.delete(keyOf(message, which));
      dropStored(keyOf(message, which));
    }
}

// The page: conversations, the composer, and what goes on between them and the server.
import {generate} from "./answers.js";
import {cacheOf, get} from "./api.js";
import {chooseSecond, labelOf, loadMethods, showCaches} from "./caches.js";
import {$, h, notice, visible} from "./dom.js";
import {dropMemories, fetchMemory, hasMemory, keepMemory, loadMemoryKeys, memoryOf, newMemory} from "./memories.js";
import {MemoryPane} from "./memory_pane.js";
import {messageElement} from "./messages.js";
import {loadModels} from "./models.js";
import {fillSettings, setSampling} from "./settings.js";
import {answerOf, conversations, newConversation, newId, saveConversations, saveSettings, settings} from "./store.js";

let current = conversations[0] ?? newConversation();
let running = null;   // {message, abort} while an answer is streamed
let editing = null;   // the message that is edited
let shown = null;     // the message whose memory is shown
let chats = true;     // the model has a chat template
let panes = [];
let pasted = "";      // a text too long for the field, sent with the next message
const kMaxField = 500000;

// Messages as the API has them, up to `end`.
function messagesUpTo(end) {
  const out = settings.system ? [{role: "system", content: settings.system}] : [];
  for (const message of current.messages.slice(0, end)) {
    if (message.role !== "assistant") {
      out.push({role: message.role, content: message.content, ...(message.tool_call_id ? {tool_call_id: message.tool_call_id} : {})});
      continue;
    }
    const {content, calls} = answerOf(message);
    const tool_calls = (calls ?? []).map((call) => ({id: call.id, type: "function", function: {name: call.name, arguments: call.arguments}}));
    out.push({role: "assistant", content, ...(tool_calls.length ? {tool_calls} : {})});
  }
  return out;
}

async function answer(attempt = 0) {
  if (running) return;
  notice("");
  const messages = messagesUpTo(current.messages.length);
  const caches = [["method", "budget"], ...(settings.compare ? [["method2", "budget2"]] : [])].map(([m, b]) => [settings[m], settings[b]]);
  const message = {id: newId(), role: "assistant", chosen: 0, attempt, answers: caches.map(([m, b]) => ({label: labelOf(m, b), content: ""}))};
  const conversation = current;
  conversation.messages.push(message);
  const abort = new AbortController();
  running = {message, abort};
  const memories = caches.map((_, i) => newMemory(message, i)), views = panes.map((pane) => pane.view);
  if (settings.memory) showMemory(message);
  render();
  const seed = caches.length > 1 ? Math.floor(Math.random() * 2 ** 31) : undefined;  // the caches differ, nothing else
  await Promise.all(caches.map(([method, budget], i) => generate(message.answers[i], messages, {cache: cacheOf(method, budget), chats, attempt, seed, view: views[i] ?? true,
    session: i === 0 ? settings.session : "", signal: abort.signal}, memories[i], () => {
    if (shown === message) panes.forEach((pane) => pane.update());
    renderLive();
  })));
  running = null;
  saveConversations();
  caches.forEach((_, i) => keepMemory(message, i));
  render();
  const failed = message.answers.find((each) => each.status === 401);
  if (failed) openSettings("set-key");
  $("announce").textContent = message.answers.some((each) => each.error) ? "The answer failed." : "The answer is complete.";
}

function send(text) {
  if (running || !text.trim()) return;
  if (!current.messages.length) current.title = text.trim().slice(0, 60);
  current.messages.push({id: newId(), role: "user", content: text});
  saveConversations();
  return answer();
}

// Removes the messages from `at` on.
const cut = (at) => dropMemories(current.messages.splice(at));

const actions = {
  edit(message) {
    editing = message;
    render();
  },
  saveEdit(message, text) {
    editing = null;
    cut(current.messages.indexOf(message) + 1);
    if (message.role === "assistant") Object.assign(answerOf(message), {content: text, stats: null});
    else message.content = text;
    saveConversations();
    render();
    if (message.role !== "assistant") answer();
  },
  regenerate() {
    const last = current.messages.at(-1);
    cut(current.messages.length - 1);
    answer((last.attempt ?? 0) + 1);
  },
  choose(message, which) {
    cut(current.messages.indexOf(message) + 1);
    message.chosen = which;
    saveConversations();
    render();
  },
  answerCall(call, text) {
    current.messages.push({id: newId(), role: "tool", content: text, tool_call_id: call.id});
    saveConversations();
    const calls = answerOf(current.messages.findLast((message) => message.role === "assistant")).calls;
    const results = current.messages.filter((message) => message.role === "tool").map((message) => message.tool_call_id);
    if (calls.every((each) => results.includes(each.id))) answer();
    else render();
  },
  showMemory(message) {
    setMemoryVisible(true);
    showMemory(message);
  },
};

function showMemory(message) {
  shown = message;
  if (message && !memoryOf(message, 0))
    Promise.all(message.answers.map((_, i) => fetchMemory(message, i))).then(() => { if (shown === message && memoryOf(message, 0)) showMemory(message); });
  panes.forEach((pane) => pane.halt());
  const heads = panes.map((pane) => pane.head);
  const detail = h("div", {class: "detail", role: "status"}, "Point at a token, or use the arrow keys, to see where it is kept.");
  panes = message ? message.answers.map((each, i) => new MemoryPane(message.answers.length > 1 ? `${i + 1}. ` : "", each.label, detail)) : [];
  const memories = panes.map((_, i) => memoryOf(message, i));
  panes.forEach((pane, i) => {
    pane.head = heads[i] ?? -1;
    pane.other = panes.length > 1 ? memories[1 - i] : null;
    if (memories[i]) pane.show(memories[i]);
  });
  $("memory-panes").replaceChildren(...(panes.length ? [...panes.map((pane) => pane.element), detail]
    : [h("p", {class: "summary"}, "Here the conversation's text is shown while the model writes: the ink of each token fades as heads of the cache forget it.")]));
}

function options(message, i) {
  return {live: running?.message === message, last: i === current.messages.length - 1, busy: Boolean(running), editing: editing === message};
}

function render() {
  const box = $("messages");
  box.replaceChildren(...(current.messages.length ? current.messages.map((message, i) => messageElement(message, options(message, i), actions))
    : [emptyElement()]));
  $("stop").hidden = !running;
  $("send").disabled = Boolean(running);
  if (!editing) box.scrollTop = box.scrollHeight;
  renderList();
}

const kExamples = {
  chat: ["Name three planets.", "Tell me a story about a dog who hid a red kite in the barn.", "Explain in two sentences what a key-value cache is.", "Write a Python function that reverses a string."],
  text: ["Once upon a time", "The Lost Kite", "It was a dark night, and the dog"],
};

function emptyElement() {
  return h("div", {class: "empty"}, h("p", {}, chats ? "Write a message. The model's memory has a fixed size: the panel shows what it keeps and what it forgets."
    : "This model has no chat template: it continues the text that you write."),
  h("div", {class: "examples"}, kExamples[chats ? "chat" : "text"].map((text) => h("button", {type: "button", onclick: () => send(text)}, text))));
}

let drawn = 0;
function renderLive() {
  const now = performance.now();
  if (!running || !current.messages.includes(running.message) || now - drawn < 80) return;
  drawn = now;
  const box = $("messages"), stays = box.scrollHeight - box.scrollTop - box.clientHeight < 80;
  const i = current.messages.indexOf(running.message);
  box.children[i]?.replaceWith(messageElement(running.message, options(running.message, i), actions));
  if (stays) box.scrollTop = box.scrollHeight;
}

function open(conversation) {
  running?.abort.abort();
  current = conversation;
  editing = null;
  document.body.classList.remove("menu");
  $("menu").setAttribute("aria-expanded", "false");
  showLastMemory();
  render();
}

function showLastMemory() {
  showMemory(current.messages.findLast((message) => message.role === "assistant" && hasMemory(message)) ?? null);
}

function remove(conversation) {
  dropMemories(conversation.messages);
  conversations.splice(conversations.indexOf(conversation), 1);
  if (conversation === current) open(conversations[0] ?? newConversation());
  saveConversations();
  renderList();
}

function renderList() {
  $("conversations").replaceChildren(...conversations.map((each) => {
    const title = visible(each.title || "New conversation");
    return h("li", {}, h("button", {type: "button", class: "open", dir: "auto", "aria-current": each === current ? "true" : null, onclick: () => open(each)}, title),
      h("button", {type: "button", class: "plain", "aria-label": `Delete ${title}`, onclick: () => remove(each)}, "×"));
  }));
}

function setMemoryVisible(on) {
  const narrow = matchMedia("(max-width: 720px)").matches;
  settings.memory = on || narrow;
  document.body.classList.toggle("no-memory", !settings.memory);
  document.body.classList.toggle("shows-memory", narrow && on);
  $("memory-toggle").setAttribute("aria-pressed", String(on));
  saveSettings();
}

function setTheme(theme) {
  settings.theme = theme;
  const dark = theme === "dark" || (!theme && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.classList.toggle("dark", dark);
  $("theme").setAttribute("aria-label", `Theme: ${theme || "as the system"}`);
  saveSettings();
}

function openSettings(focus) {
  fillSettings();
  $("settings").showModal();
  if (focus) $(focus).focus();
}

async function connect() {
  try {
    await loadModels(connect);
    const props = await get("/props");
    chats = Boolean(props.chat_template);
    if (!settings.model) $("model").textContent = visible(props.model_alias);
    setSampling(props.default_generation_settings.params);
    await loadMethods(props.cache);
    notice("");
  } catch (error) {
    notice(error.status === 401 ? "This server needs an API key: enter it in the settings." : `The server cannot be reached: ${error.message}`);
    if (error.status === 401) openSettings("set-key");
  }
  render();
}

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  if (running) return;
  const text = $("input").value + pasted;
  $("input").value = pasted = "";
  send(text);
});
$("input").addEventListener("paste", (event) => {
  const text = event.clipboardData.getData("text/plain");
  if (text.length < kMaxField) return;
  event.preventDefault();
  pasted += text;
  notice(`The pasted text has ${pasted.length.toLocaleString()} characters. It is not shown, and is sent with the next message.`);
});
$("input").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  $("composer").requestSubmit();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && running && !$("settings").open) running.abort.abort();
});
$("stop").addEventListener("click", () => running?.abort.abort());
$("new").addEventListener("click", () => {
  open(current.messages.length ? newConversation() : current);
  $("input").focus();
});
$("menu").addEventListener("click", () => {
  const on = document.body.classList.toggle("menu");
  $("menu").setAttribute("aria-expanded", String(on));
});
$("settings-open").addEventListener("click", () => openSettings());
$("settings").addEventListener("close", () => connect());
$("memory-toggle").addEventListener("click", () => setMemoryVisible($("memory-toggle").getAttribute("aria-pressed") !== "true"));
$("compare-toggle").addEventListener("click", () => {
  settings.compare = !settings.compare;
  $("compare-toggle").setAttribute("aria-pressed", String(settings.compare));
  if (settings.compare) chooseSecond();
  saveSettings();
  showCaches();
});
$("theme").addEventListener("click", () => setTheme({"": "dark", dark: "light", light: ""}[settings.theme]));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTheme(settings.theme));

setTheme(settings.theme);
setMemoryVisible(settings.memory && !matchMedia("(max-width: 720px)").matches);
$("compare-toggle").setAttribute("aria-pressed", String(settings.compare));
showCaches();
showMemory(null);
render();
connect();
// A reload while an answer is streamed keeps what was written.
addEventListener("pagehide", () => {
  for (const each of running?.message.answers ?? []) Object.assign(each, {stopped: true, progress: null});
  saveConversations();
});
loadMemoryKeys().then(() => {
  if (!running && !shown) showLastMemory();
  render();
});

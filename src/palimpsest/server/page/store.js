// Conversations and settings, kept in this browser only.
import {notice} from "./dom.js";

const kConversations = "palimpsest.conversations", kSettings = "palimpsest.settings";

export const defaults = {
  key: "", model: "", theme: "", system: "", temperature: "", top_p: "", top_k: "", min_p: "", seed: "", max_tokens: "512",
  method: "", budget: "", method2: "", budget2: "", tools: "", session: "", memory: true, compare: false,
};

function load(name, fallback) {
  try {
    return JSON.parse(localStorage.getItem(name)) ?? fallback;
  } catch {
    return fallback;
  }
}

function save(name, value) {
  try {
    localStorage.setItem(name, JSON.stringify(value));
  } catch {
    notice("This browser has no room left for conversations: delete some. The newest changes are not kept.");
  }
}

let count = 0;
export const newId = () => `${Date.now().toString(36)}-${(count++).toString(36)}`;

export const settings = {...defaults, ...load(kSettings, {})};
export const saveSettings = () => save(kSettings, settings);

const read = load(kConversations, []);
export const conversations = Array.isArray(read) ? read.filter((each) => Array.isArray(each?.messages)) : [];
export const saveConversations = () => save(kConversations, conversations);

export function newConversation() {
  const conversation = {id: newId(), title: "", messages: []};
  conversations.unshift(conversation);
  return conversation;
}

// A message of the assistant has one answer, or two to compare; the chosen one is part of the conversation.
export const answerOf = (message) => message.answers[message.chosen ?? 0];

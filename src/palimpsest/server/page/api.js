// Requests to this server, and to no other.
import {settings} from "./store.js";

function headers() {
  return {"Content-Type": "application/json", ...(settings.key ? {Authorization: `Bearer ${settings.key}`} : {})};
}

// Throws an Error with the server's message; `status` of 401 asks for a key.
async function failure(response) {
  let message = `${response.status} ${response.statusText}`;
  try {
    message = (await response.json()).error.message;
  } catch { /* not JSON */ }
  return Object.assign(new Error(message), {status: response.status});
}

// Of the chosen model, where the server has many.
export async function get(path) {
  if (settings.model) path += `${path.includes("?") ? "&" : "?"}model=${encodeURIComponent(settings.model)}`;
  const response = await fetch(path, {headers: headers()});
  if (!response.ok) throw await failure(response);
  return response.json();
}

// Calls `onEvent` with each object of the stream.
export async function stream(path, body, signal, onEvent) {
  const response = await fetch(path, {method: "POST", headers: headers(), body: JSON.stringify(body), signal});
  if (!response.ok) throw await failure(response);
  const reader = response.body.getReader(), decoder = new TextDecoder();
  for (let rest = ""; ;) {
    const {done, value} = await reader.read();
    if (done) break;
    const parts = (rest + decoder.decode(value, {stream: true})).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      if (!part.startsWith("data: ") || part === "data: [DONE]") continue;
      const event = JSON.parse(part.slice(6));
      if (event.error) throw new Error(event.error.message);
      onEvent(event);
    }
  }
}

function numbers(body, names) {
  for (const name of names) if (settings[name] !== "" && Number.isFinite(Number(settings[name]))) body[name] = Number(settings[name]);
}

export function cacheOf(method, budget) {
  return {...(method ? {method} : {}), ...(budget ? {budget: Number(budget)} : {})};
}

// The request for the answer to `messages`. `attempt`: how often the answer was regenerated.
// `seed`: if the settings have none. `view`: the head whose slots and scores the events tell, {layer, head}; true: none.
export function request(messages, {cache, chats, attempt, session, seed, view}) {
  const body = {stream: true, stream_options: {include_usage: true}, return_progress: true, memory_events: settings.memory && view};
  if (settings.model) body.model = settings.model;
  numbers(body, ["temperature", "top_p", "top_k", "min_p", "seed", "max_tokens"]);
  body.seed ??= seed;
  if (body.seed !== undefined) body.seed += attempt;
  if (Object.keys(cache).length) body.cache = cache;
  if (session) body.session = {save: session};
  if (!chats) {
    body.prompt = messages.map((message) => message.content).join("\n") + (messages.length ? "\n" : "");
    return body;
  }
  body.messages = messages;
  if (settings.tools.trim()) body.tools = JSON.parse(settings.tools);
  return body;
}

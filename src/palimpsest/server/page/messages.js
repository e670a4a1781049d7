// Messages as elements.
import {commonWords, comparisonText, progressText, statsText} from "./answers.js";
import {copyButton, h, plain, visible} from "./dom.js";
import {markdown} from "./markdown.js";
import {hasMemory} from "./memories.js";
import {answerOf} from "./store.js";

function pretty(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}

function callElement(call, actions) {
  const box = h("div", {class: "call"}, h("strong", {}, "Calls the tool "), h("code", {}, visible(call.name)), h("pre", {}, visible(pretty(call.arguments))));
  if (actions) {
    const result = h("textarea", {rows: "2", "aria-label": `Result of ${visible(call.name)}`, placeholder: "Result of the call"});
    box.append(result, h("button", {type: "button", onclick: () => actions.answerCall(call, result.value)}, "Send the result"));
  }
  return box;
}

// The contents of an answer. `marks`: words and which of them the other answer has, too.
export function answerBody(answer, live, marks, callActions) {
  const parts = [];
  if (answer.reasoning) parts.push(h("details", {class: "reasoning", open: live && !answer.content}, h("summary", {}, "Reasoning"), plain(answer.reasoning)));
  if (marks) parts.push(h("div", {class: "plaintext", dir: "auto"}, marks[0].map((word, i) => marks[1][i] ? visible(word) : h("span", {class: "diff"}, visible(word)))));
  else parts.push(...markdown(answer.content));
  for (const call of answer.calls ?? []) parts.push(callElement(call, live ? null : callActions));
  if (answer.error) parts.push(h("p", {role: "alert"}, "Error: ", visible(answer.error)));
  if (answer.stopped) parts.push(h("p", {class: "stats"}, "Stopped."));
  if (live && !answer.content && !answer.reasoning && !answer.error && !answer.stopped) {
    const {progress} = answer;
    parts.push(h("p", {class: "stats"}, progress ? progressText(progress) : "Reading…"));
    if (progress) parts.push(h("progress", {max: String(progress.total), value: String(progress.processed), "aria-label": "Tokens of the prompt that are read"}));
  }
  return h("div", {class: "body"}, parts);
}

function button(text, onclick, label) {
  return h("button", {type: "button", class: "plain", onclick, "aria-label": label}, text);
}

function answers(message, live, actions, last) {
  const callActions = last ? actions : null;
  if (message.answers.length < 2) {
    const answer = answerOf(message);
    return [answerBody(answer, live, null, callActions), h("div", {class: "stats"}, statsText(answer.stats))];
  }
  const [a, b] = message.answers;
  const differ = !live && a.content !== b.content, marks = differ ? commonWords(a.content, b.content) : null;
  return [h("div", {class: "variants"}, message.answers.map((answer, i) => h("section", {class: `variant${i === (message.chosen ?? 0) ? " chosen" : ""}`, "aria-label": `Answer ${i + 1}`},
    h("p", {class: "label"}, `${i + 1}. ${visible(answer.label)}`), answerBody(answer, live, marks && [marks[i], marks[2][i]], i === (message.chosen ?? 0) ? callActions : null),
    h("div", {class: "stats"}, statsText(answer.stats)),
    live ? null : copyButton(() => answer.content, `Copy answer ${i + 1}`),
    live ? null : h("button", {type: "button", class: "plain", "aria-pressed": String(i === (message.chosen ?? 0)), onclick: () => actions.choose(message, i)},
      i === (message.chosen ?? 0) ? "The conversation goes on here" : "Go on with this one")))),
  live ? null : h("p", {class: "stats"}, comparisonText(message.answers))];
}

const kWho = {user: "You", assistant: "Model", tool: "Result of a tool"};

export function messageElement(message, {live, last, busy, editing}, actions) {
  const who = h("div", {class: "who"}, h("b", {}, kWho[message.role] ?? "Message"));
  const element = h("article", {class: `message ${message.role}`, "aria-label": kWho[message.role]}, who);
  if (editing) {
    const text = h("textarea", {dir: "auto", "aria-label": "Edited message"});
    text.value = message.role === "assistant" ? answerOf(message).content : message.content;
    const done = () => actions.saveEdit(message, text.value);
    text.addEventListener("keydown", (event) => {
      if (event.key === "Escape") actions.edit(null);
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) done();
    });
    element.append(h("div", {class: "edit"}, text, h("div", {class: "actions"},
      h("button", {type: "button", class: "primary", onclick: done}, message.role === "assistant" ? "Save" : "Save and go on from here"),
      h("button", {type: "button", onclick: () => actions.edit(null)}, "Cancel"))));
    setTimeout(() => text.focus());
    return element;
  }
  if (!busy) {
    who.append(h("span", {class: "grow"}));
    if (!(message.answers?.length > 1)) who.append(copyButton(() => message.answers ? answerOf(message).content : message.content, `Copy this message of ${kWho[message.role]}`));
    who.append(button("Edit", () => actions.edit(message), `Edit this message of ${kWho[message.role]}`));
    if (message.role === "assistant" && last) who.append(button("Regenerate", () => actions.regenerate()));
    if (message.role === "assistant" && hasMemory(message)) who.append(button("Memory", () => actions.showMemory(message), "Show this answer's memory"));
  }
  if (message.role === "assistant") element.append(...answers(message, live, actions, last).filter(Boolean));
  else element.append(h("div", {class: "body"}, plain(message.content)));
  return element;
}

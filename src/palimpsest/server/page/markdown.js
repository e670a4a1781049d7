// Markdown to elements. A model's output is hostile: every text becomes a text node, links go to http(s) only, and
// nothing is loaded.
import {copyButton, h, plain, visible} from "./dom.js";

const kMaxInline = 4000, kMaxText = 200000;  // longer ones are shown as they are: no text may take long to read

function inline(text) {
  const out = [];
  if (text.length > kMaxInline) return [visible(text)];
  const pattern = /(`+)([^`]|[^`][\s\S]*?[^`])\1(?!`)|\*\*(\S(?:[\s\S]*?\S)?)\*\*|(?<![\w*])\*(\S(?:[^*]*?\S)?)\*(?!\w)|\[([^\]\n]+)\]\((https?:\/\/[^\s()<>]+)\)/;
  for (let rest = text; rest;) {
    const found = pattern.exec(rest);
    if (!found) {
      out.push(visible(rest));
      break;
    }
    if (found.index > 0) out.push(visible(rest.slice(0, found.index)));
    if (found[1]) out.push(h("code", {}, visible(found[2])));
    else if (found[3] !== undefined) out.push(h("strong", {}, inline(found[3])));
    else if (found[4] !== undefined) out.push(h("em", {}, inline(found[4])));
    else out.push(h("a", {href: found[6], rel: "noopener noreferrer nofollow", target: "_blank"}, visible(found[5])));
    rest = rest.slice(found.index + found[0].length);
  }
  return out;
}

const cells = (line) => line.replace(/^\s*\||\|\s*$/g, "").split("|").map((cell) => cell.trim());

function list(lines, i, out) {
  const ordered = /^\s*\d+[.)]\s/.test(lines[i]);
  const element = h(ordered ? "ol" : "ul", ordered ? {start: String(parseInt(lines[i], 10))} : {});
  while (i < lines.length && /^\s*([-*+]|\d+[.)])\s+/.test(lines[i])) {
    let item = lines[i++].replace(/^\s*([-*+]|\d+[.)])\s+/, "");
    while (i < lines.length && /^\s{2,}\S/.test(lines[i]) && !/^\s*([-*+]|\d+[.)])\s+/.test(lines[i]))
      item += "\n" + lines[i++].trim();
    element.append(h("li", {}, inline(item)));
  }
  out.push(element);
  return i;
}

export function markdown(text) {
  if (text.length > kMaxText) return [plain(text)];
  const lines = text.split("\n"), out = [];
  for (let i = 0; i < lines.length;) {
    const line = lines[i];
    const fence = /^\s*(```+|~~~+)\s*(\S*)/.exec(line);
    if (fence) {
      const code = [];
      for (++i; i < lines.length && !lines[i].trim().startsWith(fence[1]); ++i) code.push(lines[i]);
      ++i;
      out.push(h("div", {class: "code"}, copyButton(() => code.join("\n"), "Copy this code"),
        h("pre", {tabindex: "0", "aria-label": fence[2] ? `Code, ${visible(fence[2])}` : "Code"}, h("code", {}, visible(code.join("\n"))))));
    } else if (!line.trim()) {
      ++i;
    } else if (/^#{1,6}\s/.test(line)) {
      const level = Math.min(6, /^#+/.exec(line)[0].length + 2);
      out.push(h(`h${level}`, {}, inline(line.replace(/^#+\s*/, ""))));
      ++i;
    } else if (/^\s*([-*_])(\s*\1){2,}\s*$/.test(line)) {
      out.push(h("hr"));
      ++i;
    } else if (/^\s*>/.test(line)) {
      const quoted = [];
      for (; i < lines.length && /^\s*>/.test(lines[i]); ++i) quoted.push(lines[i].replace(/^\s*>\s?/, ""));
      out.push(h("blockquote", {}, quoted.length < 200 ? markdown(quoted.join("\n").replace(/^(\s*>)+/gm, "")) : quoted.join("\n")));
    } else if (/^\s*([-*+]|\d+[.)])\s+/.test(line)) {
      i = list(lines, i, out);
    } else if (line.includes("|") && /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)+\|?\s*$/.test(lines[i + 1] ?? "")) {
      const table = h("table", {}, h("tr", {}, cells(line).map((cell) => h("th", {}, inline(cell)))));
      for (i += 2; i < lines.length && lines[i].includes("|"); ++i)
        table.append(h("tr", {}, cells(lines[i]).map((cell) => h("td", {}, inline(cell)))));
      out.push(table);
    } else {
      const paragraph = [];
      while (i < lines.length && lines[i].trim() && !/^\s*(```|~~~|#{1,6}\s|>|[-*+]\s+|\d+[.)]\s+)/.test(lines[i])) paragraph.push(lines[i++]);
      if (!paragraph.length) paragraph.push(lines[i++]);
      out.push(h("p", {dir: "auto", class: "plaintext"}, inline(paragraph.join("\n"))));
    }
  }
  return out;
}

#!/usr/bin/env python3
"""Drives the server's page in Chromium against a real server with the default model.

  make page-check                       (Playwright and axe-core from PyPI, Chromium from Debian)
  tools/page/check.py --only memory     the checks whose names contain this
"""
import argparse
import json
import pathlib
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import browser as b  # noqa: E402

b.enter()
from axe_playwright_python.sync_playwright import Axe  # noqa: E402
from playwright.sync_api import sync_playwright  # noqa: E402
from server import REPO, Server  # noqa: E402

HOSTILE = ('<img src=x onerror="window.hacked=1"><script>window.hacked=1</script> \x1b[31mred\x1b[0m \x07 \u202edrowssap\u202c '
           '[click](javascript:window.hacked=1) [away](https://example.org/x) **bold** <a href="javascript:window.hacked=1">x</a>')
SEED = {"seed": "7", "temperature": "0.7", "max_tokens": "60"}


class Checks:
    def __init__(self, chromium, program):
        self.chromium, self.program, self.requests = chromium, program, 0
        self.folder = tempfile.TemporaryDirectory()
        self.server = self.serve("--session-path", self.folder.name)

    def serve(self, *flags):
        return Server(self.program, "--port", 0, "--chat-template", "chatml", *flags)

    def page(self, settings=None, server=None, **how):
        page = b.Page(self.chromium, (server or self.server).url, settings={**SEED, **(settings or {})}, **how).open()
        return page

    def end(self, page, errors=()):
        """No request left the host, and the console has no errors but the expected ones."""
        self.requests += len(page.requests)
        assert page.foreign() == [], page.foreign()
        unexpected = [error for error in page.errors if not any(part in error for part in errors)]
        assert unexpected == [], unexpected
        assert not page.page.evaluate("Boolean(window.hacked)")
        page.close()

    @staticmethod
    def answer(page, chunks):
        """Answers chats with a fabricated stream."""
        page.page.route("**/v1/chat/completions", lambda route: route.fulfill(
            body="".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks()) + "data: [DONE]\n\n",
            content_type="text/event-stream"))

    def api(self, path):
        return json.load(urllib.request.urlopen(self.server.url + path))

    def check_streams_and_stops(self):
        page = self.page({"max_tokens": "100000", "method": "streaming", "budget": "64"})
        page.send("Tell me a long story.", wait=False)
        lengths = set()
        b.until(lambda: lengths.add(len("".join(page.answers()))) or len([n for n in lengths if n > 0]) >= 4, "a text that grows")
        assert page.page.locator("#stop").is_visible()
        page.page.click("#stop")
        page.wait()
        assert "Stopped." in page.answers()[-1] and len(page.answers()[-1]) > 20
        self.server.wait_until_idle()
        page.send("Again.", wait=False)
        b.until(lambda: page.page.locator("#stop").is_visible(), "an answer")
        page.page.keyboard.press("Escape")
        page.wait()
        self.server.wait_until_idle()
        self.end(page)

    def check_regenerates_and_edits(self):
        page = self.page({"temperature": "1.5"})
        page.send("Tell me about a dog.")
        page.send("And a cat?")
        first, second = page.answers()
        stats = page.page.locator(".message.assistant > .stats").all_inner_texts()
        assert all("tokens/s" in text and "first token after" in text for text in stats), stats
        assert int(stats[1].split(" reused")[0].split("· ")[-1]) > 0, stats  # the first turn was not read again
        page.page.get_by_role("button", name="Regenerate").click()
        page.wait()
        assert page.answers()[0] == first and len(page.answers()) == 2 and page.answers()[1] != second
        # An edit in the middle: what follows goes, the conversation goes on from there.
        page.page.locator(".message.user").first.get_by_role("button", name="Edit").click()
        page.page.get_by_label("Edited message").fill("Tell me about a horse.")
        page.page.get_by_role("button", name="Save and go on from here").click()
        page.wait()
        assert len(page.answers()) == 1 and page.answers()[0] != first
        assert page.page.locator(".message.user .body").all_inner_texts() == ["Tell me about a horse."]
        # Kept in the browser, each conversation apart.
        page.page.click("#new")
        page.send("Another one.")
        assert page.page.locator("#conversations li").count() == 2
        page.page.reload()
        page.until("document.querySelectorAll('.message').length === 2")
        page.page.locator("#conversations .open").nth(1).click()
        assert page.page.locator(".message.user .body").all_inner_texts() == ["Tell me about a horse."]
        page.page.get_by_label("Delete Another one.").click()
        assert page.page.locator("#conversations li").count() == 1
        self.end(page)

    def check_memory_is_the_api(self):
        for method in ["h2o", "streaming", "ems", "full"]:
            page = self.page({"method": method, "budget": "" if method == "full" else "40", "session": f"check-{method}", "max_tokens": "120"})
            page.send("Tell me a story about a dog and a red kite in the barn.")
            page.send("What happened then?")
            answer = self.api(f"/v1/sessions/check-{method}/memory")
            self.same_memory(page, answer)
            # One head: what it keeps, and its slots and scores.
            layer, head = 2, 1
            page.page.get_by_label("Layer").select_option(str(layer))
            page.page.get_by_label("Head", exact=True).select_option(str(head))
            page.wait()
            answer = self.api(f"/v1/sessions/check-{method}/memory?layer={layer}&head={head}")
            shown = page.tokens()
            assert [not gone for *_, gone in shown] == ["slot" in token for token in answer["tokens"]]
            kept = [token for token in answer["tokens"] if "slot" in token and token["text"].strip()]
            for token in (kept[0], kept[len(kept) // 2], kept[-1]):
                page.page.locator(f'.text span[data-p="{token["position"]}"]').hover()
                detail = page.page.locator(".detail").inner_text()
                assert f"token {token['position']};" in detail and f"slot {token['slot']}," in detail, (detail, token)
            self.end(page)

    def same_memory(self, page, answer):
        shown = page.tokens()
        assert len(shown) == answer["read"] == len(answer["tokens"]), (len(shown), answer["read"])
        for (position, text, kept, gone), token in zip(shown, answer["tokens"]):
            assert (position, kept) == (token["position"], token["kept"]), (position, kept, token)
            assert text == token["text"].replace("\x0a", "\n"), (text, token)
            assert gone == (token["kept"] + token["merged"] == 0), token
        summary = page.page.locator(".summary").first.inner_text()
        whole = sum(token["kept"] + token["merged"] >= answer["heads"] for token in answer["tokens"])
        assert f"Of {answer['read']} tokens {whole} are in all {answer['heads']} heads" in summary, summary

    def check_time_goes_back(self):
        page = self.page({"method": "streaming", "budget": "32", "max_tokens": "150"})
        page.send("Tell me a story.")
        now = sum(gone for *_, gone in page.tokens())
        assert now > 50
        page.page.get_by_label("Time: tokens read").evaluate("s => { s.value = '30'; s.dispatchEvent(new Event('input')); }")
        page.wait()
        assert page.page.locator(".text span[data-p]:not([hidden])").count() == 30
        assert page.page.locator(".text span.gone:not([hidden])").count() == 0
        page.page.get_by_role("button", name="Replay").click()
        b.until(lambda: sum(gone for *_, gone in page.tokens()) == now, "the end of the replay")
        page.page.locator(".text").focus()
        page.page.keyboard.press("ArrowRight")
        assert "token 0;" in page.page.locator(".detail").inner_text()
        self.end(page)

    def check_two_methods_side_by_side(self):
        page = self.page({"compare": True, "method": "streaming", "budget": "32", "method2": "h2o", "budget2": "48", "max_tokens": "120"})
        page.send("Tell me a story about a dog.")
        assert page.page.locator(".variant").count() == 2 and page.page.locator(".pane").count() == 2
        texts = page.page.locator(".variant .body").all_inner_texts()
        assert all(len(text) > 30 for text in texts)
        assert (texts[0] != texts[1]) == (page.page.locator(".diff").count() > 0)
        assert page.page.locator(".text span.only").count() > 0
        page.page.get_by_role("button", name="Go on with this one").click()
        assert page.page.locator(".variant").nth(1).evaluate("v => v.classList.contains('chosen')")
        page.send("And then?")
        self.end(page)

    def check_compare_is_one_click(self):
        page = self.page({"method": "streaming", "budget": "32", "max_tokens": "80"})
        page.page.click("#compare-toggle")
        assert not page.page.locator("#settings").is_visible()
        assert [page.page.locator(name).input_value() for name in ("#method", "#method2")] == ["streaming", "full"]
        page.page.locator("#method2").select_option("h2o")
        page.page.fill("#budget2", "40")
        page.send("Tell me a story about a dog.")
        labels = page.page.locator(".variant .label").all_inner_texts()
        assert labels == ["1. streaming, budget 32", "2. h2o, budget 40"], labels
        assert "Dotted underlines" in page.page.locator(".variants + .stats").inner_text()
        page.page.click("#compare-toggle")
        assert page.page.locator("#method2").count() == 0
        self.end(page)

    def check_compare_blames_no_eviction_that_was_not(self):
        page = self.page({"compare": True, "method": "auto", "method2": "full", "max_tokens": "20", "seed": ""})
        seeds = []
        page.page.on("request", lambda one: seeds.append(json.loads(one.post_data)["seed"]) if one.post_data else None)
        page.send("Hello.")
        assert "either cache evicted a token" in page.page.locator(".variants + .stats").inner_text()
        assert len(seeds) == 2 and seeds[0] == seeds[1], seeds  # only the caches differ
        texts = iter(["a red kite", "a blue kite"])

        self.answer(page, lambda: [
            {"choices": [{"delta": {"content": next(texts)}}]},
            {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3, "evicted_tokens": 0}}])
        page.send("Go on.")
        said = page.page.locator(".variants + .stats").last.inner_text()
        assert "eviction is not why the answers differ" in said and page.page.locator(".diff").count() > 0, said
        self.end(page)

    def check_heat_map_fits(self):
        heads = [3] * 29 + [2]  # of layers
        layout = {"heads": heads, "tables": list(range(sum(heads))), "method": "h2o", "budget": 2, "sinks": 0}
        chunks = [{"choices": [{"delta": {"content": "x"}}]},
                  {"choices": [], "memory": {"choice": 0, "read": 2, "first": 0, "bytes": [1, 2, 3], "tokens": ["a", " b"],
                                             "layout": layout, "changes": [1, 88, 0, -1], "last": True}}]
        for viewport in [b.DESK, b.PHONE]:
            page = self.page(viewport=viewport)
            self.answer(page, lambda: chunks)
            page.send("Hello.")
            if viewport is b.PHONE:
                page.page.locator("header").get_by_role("button", name="Memory").click()
            cells = page.page.locator(".heat i")
            assert cells.count() == sum(heads)
            right = page.page.evaluate("document.getElementById('memory').getBoundingClientRect().right")
            boxes = [cells.nth(i).bounding_box() for i in range(cells.count())]
            assert all(box["x"] + box["width"] <= right and box["width"] >= 10 for box in boxes), (viewport, boxes, right)
            cells.last.click()
            assert page.page.get_by_label("Layer").input_value() == "29"
            assert page.page.get_by_label("Head", exact=True).input_value() == "1"
            page.wait()
            assert [gone for *_, gone in page.tokens()] == [True, False]
            self.end(page)

    def check_reload_keeps_the_memory(self):
        page = self.page({"method": "h2o", "budget": "40", "max_tokens": "120"})
        page.send("Tell me a story about a dog and a red kite in the barn.")
        shown = (page.tokens(), page.page.locator(".summary").first.inner_text(), page.answers())
        assert any(gone for *_, gone in shown[0])
        page.until("indexedDB.databases().then((all) => all.length)")
        page.page.reload()
        b.until(lambda: page.page.locator(".text span[data-p]").count() > 0, "the memory of before the reload")
        page.wait()
        assert shown == (page.tokens(), page.page.locator(".summary").first.inner_text(), page.answers())
        assert [page.page.locator(name).input_value() for name in ("#method", "#budget")] == ["h2o", "40"]
        page.page.get_by_label("Time: tokens read").evaluate("s => { s.value = '30'; s.dispatchEvent(new Event('input')); }")
        page.wait()
        assert page.page.locator(".text span[data-p]:not([hidden])").count() == 30
        # What was written before a reload in the middle of an answer stays.
        page.page.click("#settings-open")
        page.page.get_by_label("Max tokens").fill("100000")
        page.page.get_by_role("button", name="Done").click()
        page.send("Tell me a long one.", wait=False)
        b.until(lambda: len(page.answers()[-1]) > 200, "a text that grows")
        page.page.reload()
        page.until("document.querySelectorAll('.message').length === 4")
        assert len(page.answers()[-1]) > 200 and "Stopped." in page.answers()[-1]
        page.page.get_by_label("Delete Tell me a story").click()
        page.page.reload()
        page.until("!document.querySelector('.message')")
        assert page.page.locator(".text span[data-p]").count() == 0
        self.end(page)

    def check_copies_and_examples(self):
        page = self.page({"max_tokens": "30"})
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.page.locator(".examples button").first.click()
        b.until(lambda: page.page.locator(".message.assistant").count() == 1, "an answer")
        page.wait()
        page.page.get_by_label("Copy this message of Model").click()
        page.page.get_by_text("Copied").first.wait_for()
        assert page.page.evaluate("navigator.clipboard.readText()").strip() == page.answers()[0].strip()
        code = "def f():\n    return '<b>'"
        self.answer(page, lambda: [{"choices": [{"delta": {"content": f"So:\n\n```python\n{code}\n```\n"}}]}])
        page.send("Go on.")
        page.page.get_by_label("Copy this code").click()
        page.page.get_by_text("Copied").first.wait_for()
        assert page.page.evaluate("navigator.clipboard.readText()") == code
        self.end(page)

    def check_progress_of_a_long_prompt(self):
        page = self.page({"method": "streaming", "budget": "64", "max_tokens": "5"})
        page.send("The dog ran into the barn and found a red kite there. " * 900, wait=False)
        b.until(lambda: page.page.locator("progress").count(), "a bar of progress")
        texts = page.page.locator(".message.assistant .body .stats")
        said = b.until(lambda: next((text for text in texts.all_inner_texts() if " left" in text), ""), "how much is left")
        assert said.startswith("Reading: ") and " tokens, " in said, said
        page.wait()
        assert page.page.locator("progress").count() == 0 and "Reading" not in page.answers()[-1]
        self.end(page)

    def check_methods_that_cannot_run(self):
        with tempfile.TemporaryDirectory() as folder:
            bare = pathlib.Path(folder) / "bare.gguf"  # without the files beside the default model
            bare.symlink_to(REPO / "models" / "palimpsest-stories.gguf")
            server = self.serve("-m", bare)
            try:
                page = self.page(server=server)
                assert page.page.locator('#method option[value="kvzap"]').is_disabled()
                assert page.page.locator('#method option[value="h2o"]').is_enabled()
                page.page.locator(".missing summary").click()
                said = page.page.locator(".missing").inner_text()
                assert "bare.kvzap" in said and "palimpsest fit -m MODEL" in said, said
                self.end(page)
            finally:
                server.end()

    def check_key(self):
        server = self.serve("--api-key", "secret")
        try:
            page = self.page(server=server)
            page.page.wait_for_selector("#settings[open]")
            page.page.get_by_label("API key").fill("secret")
            page.page.get_by_role("button", name="Done").click()
            b.until(lambda: page.page.locator("#notice").is_hidden(), "the key is accepted")
            page.send("Hello.")
            assert len(page.answers()[0]) > 5
            self.end(page, errors=["401"])
        finally:
            server.end()

    def check_hostile_text(self):
        page = self.page({"session": "<b>x</b>"})
        page.send(HOSTILE)
        body = page.page.locator(".message.user .body").inner_text()
        assert "<img src=x onerror" in body and "␛[31mred" in body and "⟨U+202E⟩drowssap" in body, body
        assert "session.save" in page.answers()[-1], page.answers()  # refused, and said as text
        # A model's output, through a fabricated stream.
        chunks = [{"choices": [{"delta": {"content": HOSTILE + "\n\n```html\n" + HOSTILE + "\n```\n| a | b |\n|---|---|\n| <i>1</i> | 2 |\n"}}]},
                  {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "1", "function": {"name": HOSTILE, "arguments": HOSTILE}}]}}]},
                  {"choices": [], "memory": {"choice": 0, "read": 2, "first": 0, "bytes": [1, 2, 3], "tokens": [HOSTILE, "\u202e"],
                                             "layout": {"heads": [1], "tables": [0], "method": HOSTILE, "budget": 2, "sinks": 0}, "changes": []}}]
        self.answer(page, lambda: chunks)
        page.send("Go on.")
        assert page.page.locator("#layout img, #layout script, #layout i:not(.heat i), #layout a[href^='javascript']").count() == 0
        assert page.page.locator(".message.assistant").last.locator("a").get_attribute("href") == "https://example.org/x"
        assert "\u202e" not in page.page.locator("#layout").inner_text()
        page.page.unroute("**/v1/chat/completions")
        # 10 MB: refused by the server, named, and the page goes on.
        page.page.evaluate("""() => {
          const data = new DataTransfer();
          data.setData("text/plain", "long ".repeat(2e6));
          document.getElementById("input").dispatchEvent(new ClipboardEvent("paste", {clipboardData: data, cancelable: true}));
        }""")
        assert "10,000,000 characters" in page.page.locator("#notice").inner_text()
        page.page.press("#input", "Enter")
        page.wait()
        assert "Error" in page.answers()[-1], page.answers()[-1][:200]
        assert len(page.page.locator(".message.user .body").last.inner_text()) < 30000
        self.end(page, errors=["413", "400"])

    def check_phone(self):
        page = self.page({"method": "streaming", "budget": "32"}, viewport=b.PHONE)
        page.send("Tell me a story about a dog with a very long name.")
        width = "document.scrollingElement.scrollWidth"
        assert page.page.evaluate(width) <= 390, page.page.evaluate(width)
        page.page.locator("header").get_by_role("button", name="Memory").click()
        assert page.page.locator(".text").is_visible() and not page.page.locator("#messages").is_visible()
        assert page.page.evaluate(width) <= 390
        page.page.locator("header").get_by_role("button", name="Memory").click()
        page.page.get_by_role("button", name="Conversations").click()
        assert page.page.locator("#new").is_visible()
        self.end(page)

    def check_themes(self):
        ink = "getComputedStyle(document.body).backgroundColor"
        colors = set()
        for dark in [False, True]:
            page = self.page(dark=dark)
            colors.add(page.page.evaluate(ink))
            page.page.click("#theme")
            self.end(page)
        assert len(colors) == 2, colors

    def check_accessibility(self):
        for viewport in [b.DESK, b.PHONE]:
            for dark in [False, True]:
                page = self.page({"method": "streaming", "budget": "32", "compare": viewport is b.DESK, "method2": "h2o", "budget2": "32"},
                                 viewport=viewport, dark=dark)
                page.send("Tell me a story, with `code`.")
                self.axe(page)
                if viewport is b.PHONE:
                    page.page.locator("header").get_by_role("button", name="Memory").click()
                    self.axe(page)
                page.page.click("#settings-open")
                self.axe(page)
                self.end(page)

    def axe(self, page):
        found = Axe().run(page.page).response["violations"]
        serious = [(each["id"], each["nodes"][0]["html"][:200], each["nodes"][0]["failureSummary"][:300])
                   for each in found if each["impact"] in ("serious", "critical")]
        assert serious == [], serious

    def check_headers(self):
        answer = urllib.request.urlopen(self.server.url + "/")
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "connect-src 'self'" in policy and "unsafe" not in policy, policy
        text = answer.read().decode()
        again = urllib.request.urlopen(self.server.url + "/").headers["Content-Security-Policy"]
        assert policy != again and "NONCE" not in text
        assert "http://" not in text.replace("http://www.w3.org/", ""), "the page names another host"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=REPO / "build" / "palimpsest")
    parser.add_argument("--only", default="", help="the checks whose names contain this")
    flags = parser.parse_args()
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=b.chromium(), args=["--no-sandbox"])
        checks = Checks(chromium, flags.program)
        try:
            for name in [each for each in dir(checks) if each.startswith("check_") and flags.only in each]:
                start = time.monotonic()
                getattr(checks, name)()
                print(f"{name[6:].replace('_', ' ')}: {time.monotonic() - start:.1f} s", flush=True)
        finally:
            checks.server.process.terminate()
            checks.server.process.wait(timeout=60)
            chromium.close()
    print(f"page: all checks passed, {checks.requests} requests, none to another host")


if __name__ == "__main__":
    main()

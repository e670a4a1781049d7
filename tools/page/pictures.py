#!/usr/bin/env python3
"""Pictures of the page with the default model: docs/pictures.

  make page-pictures            page.png is the README's; the others show both widths and both themes
"""
import argparse
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import browser as b  # noqa: E402

b.enter()
from playwright.sync_api import sync_playwright  # noqa: E402
from server import REPO, Server  # noqa: E402

MAX_BYTES = 300_000
TALK = ["Tell me a story about a dog who hid a red kite in the barn.", "What happened to the kite?", "Who found it?"]
STORY = {"method": "h2o", "budget": "96", "seed": "5", "temperature": "0.6", "max_tokens": "110"}
PAIR = {**STORY, "compare": True, "method": "streaming", "budget": "64", "method2": "h2o", "budget2": "64", "max_tokens": "90"}


def talk(page, messages=TALK):
    for message in messages:
        page.send(message)
    page.page.locator("#messages").evaluate("box => box.scrollTop = box.scrollHeight")
    return page


def picture(page, folder, name):
    page.page.mouse.move(0, 0)
    path = folder / f"{name}.png"
    page.page.screenshot(path=path)
    assert path.stat().st_size < MAX_BYTES, f"{path} has {path.stat().st_size} bytes"
    print(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=REPO / "build" / "palimpsest")
    parser.add_argument("--folder", type=pathlib.Path, default=REPO / "docs" / "pictures")
    flags = parser.parse_args()
    flags.folder.mkdir(parents=True, exist_ok=True)
    server = Server(flags.program, "--port", 0, "--chat-template", "chatml")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=b.chromium(), args=["--no-sandbox"])
        try:
            for dark in [False, True]:
                theme = "dark" if dark else "light"
                page = talk(b.Page(chromium, server.url, dark=dark, settings=STORY).open())
                picture(page, flags.folder, "page" if not dark else "page-dark")
                if not dark:
                    page.page.click("#settings-open")
                    picture(page, flags.folder, "settings-light")
                page.close()
                page = talk(b.Page(chromium, server.url, dark=dark, settings=PAIR).open(), TALK[:1])
                picture(page, flags.folder, f"side-by-side-{theme}")
                page.close()
                page = talk(b.Page(chromium, server.url, b.PHONE, dark, settings=STORY).open(), TALK[:2])
                picture(page, flags.folder, f"phone-{theme}")
                page.page.locator("header").get_by_role("button", name="Memory").click()
                page.wait()
                picture(page, flags.folder, f"phone-memory-{theme}")
                page.close()
        finally:
            server.process.terminate()
            server.process.wait(timeout=60)
            chromium.close()


if __name__ == "__main__":
    main()

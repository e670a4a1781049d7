"""Chromium with the page of a palimpsest server: what scripts of this folder do with it."""
import json
import pathlib
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "setup"))
sys.path.insert(0, str(HERE.parent.parent / "tests" / "system"))
import environment  # noqa: E402

PACKAGES = ["playwright==1.65.2", "axe-playwright-python==0.1.8"]
DESK, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}


def enter():
    """Runs the script with the packages from PyPI. Exits with a message where they or a browser cannot be had."""
    if chromium() is None:
        sys.exit(print("page: skipped, there is no Chromium: apt install chromium") or 0)
    try:
        environment.enter("page-check", PACKAGES, "about 60 MB")
    except environment.Unavailable as error:
        sys.exit(print(f"page: skipped, {error}") or 0)


def chromium():
    for name in ["chromium", "chromium-browser", "google-chrome"]:
        if path := shutil.which(name):
            return path
    if subprocess.run(["id", "-u"], capture_output=True, text=True).stdout.strip() == "0" and shutil.which("apt-get"):
        print("page: installing chromium (apt-get) ...", file=sys.stderr, flush=True)
        for words in [["update"], ["install", "-y", "--no-install-recommends", "chromium", "fonts-dejavu-core"]]:
            subprocess.run(["apt-get", "-q", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return shutil.which("chromium")


class Page:
    """One page in a context of its own: no storage is shared. Records requests, console errors and exceptions."""

    def __init__(self, browser, url, viewport=DESK, dark=False, settings=None):
        self.url = url
        self.context = browser.new_context(viewport=viewport, color_scheme="dark" if dark else "light",
                                           reduced_motion="reduce", bypass_csp=False)
        if settings:
            stored = json.dumps(json.dumps(settings))
            self.context.add_init_script(f"if (!localStorage.getItem('palimpsest.settings')) "
                                         f"localStorage.setItem('palimpsest.settings', {stored})")
        self.page = self.context.new_page()
        self.requests, self.errors = [], []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    def open(self):
        self.page.goto(self.url + "/")
        self.until("document.getElementById('model').textContent || !document.getElementById('notice').hidden")
        return self

    def until(self, expression, seconds=20):
        """Playwright's own wait_for_function evaluates text in the page, which the page's policy forbids."""
        until(lambda: self.page.evaluate(f"Boolean({expression})"), expression, seconds)

    def send(self, text, wait=True):
        self.page.fill("#input", text)
        self.page.press("#input", "Enter")
        if wait:
            self.wait()

    def wait(self, seconds=60):
        """Until no answer is streamed, and what is shown is drawn."""
        self.until("!document.getElementById('send').disabled", seconds)
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def answers(self):
        return self.page.locator(".message.assistant .body").all_inner_texts()

    def tokens(self, pane=0):
        """What the view of memory shows: [position, text, heads that keep it, forgotten]."""
        return self.page.locator(".text").nth(pane).locator("span[data-p]").evaluate_all(
            "all => all.map((s) => [Number(s.dataset.p), s.textContent, Number(s.dataset.kept), s.classList.contains('gone')])")

    def foreign(self):
        return [url for url in self.requests if not url.startswith(self.url + "/") and not url.startswith("data:")]

    def close(self):
        self.context.close()


def until(condition, what, seconds=20):
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.02)
    return value

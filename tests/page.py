#!/usr/bin/env python3
"""Opens a page of `eider sass --html` in headless Chromium, points at terms, looks at what is lit.

    page.py PAGE.html [SCREENSHOT-PREFIX]

Ends with status 77, and says so, where there is no Chromium (Debian: chromium-headless-shell).
It is driven by its own protocol over two pipes, as a person would: by moving the mouse.
"""
import base64
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

PROGRAMS = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"]
SIZES = [(1280, 900), (390, 844)]
CONTRAST_MIN = 4.5  # WCAG 2.1, level AA
DEADLINE_S = 120


class Browser:
    """Chromium with one page, behind the pipe of --remote-debugging-pipe."""

    def __init__(self, program, profile):
        to_child, self.out = os.pipe()
        self.inp, from_child = os.pipe()

        def place():  # the child reads commands from 3 and writes answers to 4
            os.dup2(to_child, 13), os.dup2(from_child, 14)
            os.dup2(13, 3), os.dup2(14, 4)

        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--hide-scrollbars",
             f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"],
            preexec_fn=place, close_fds=False, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_child), os.close(from_child)
        self.buffer, self.count, self.session = b"", 0, None
        self.end = time.monotonic() + DEADLINE_S

    def receive(self):
        while b"\0" not in self.buffer:
            if time.monotonic() > self.end:
                sys.exit("page.py: Chromium does not answer")
            data = os.read(self.inp, 1 << 20)
            if not data:
                sys.exit("page.py: Chromium ended")
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **params):
        self.count += 1
        message = {"id": self.count, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.count:
                if "error" in answer:
                    sys.exit(f"page.py: {method}: {answer['error']}")
                return answer["result"]

    def open(self, url):
        target = self.call("Target.createTarget", url=url)["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target,
                                 flatten=True)["sessionId"]
        while self.js("location.href + document.readyState") != url + "complete":
            time.sleep(0.05)

    def js(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            sys.exit(f"page.py: {expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def look(self, width, height, scheme):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": scheme}])

    def move_to(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))


# The rows of a column that are lit, and all that are in the pass, as text.
LIT = "[...document.querySelectorAll('#%s .lit')].map(r => r.textContent)"
ROWS = "[...document.querySelectorAll('#%s > div:not(.out)')].map(r => r.textContent)"
# The row of a column whose text contains a word, moved into view: its middle.
PLACE = """(() => {
  const row = [...document.querySelectorAll('#%s > div')].find(r => r.textContent.includes('%s'));
  row.scrollIntoView({block: 'center'});
  const b = row.getBoundingClientRect();
  return [b.left + Math.min(b.width, 60) / 2, b.top + b.height / 2];
})()"""
# How many lit rows of a column can be seen in it.
SEEN = """(() => {
  const box = document.getElementById('%s'), b = box.getBoundingClientRect();
  return [...box.querySelectorAll('.lit')].map(r => r.getBoundingClientRect())
    .filter(r => r.top >= b.top && r.bottom <= b.bottom).length;
})()"""
# Contrast of text against what is behind it.
CONTRAST = """(() => {
  const rgb = c => c.match(/[\\d.]+/g).map(Number);
  const light = c => rgb(c).slice(0, 3).map(v => v / 255)
    .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((s, v, i) => s + v * [.2126, .7152, .0722][i], 0);
  const behind = e => {
    for (; e; e = e.parentElement) {
      const c = getComputedStyle(e).backgroundColor;
      if (rgb(c).length < 4 || rgb(c)[3] > 0) return c;
    }
    return 'rgb(255,255,255)';
  };
  return ['h1', 'dd', 'dt', 'td', 'th', '#terms b', '#terms .lit', '#sass .c', 'footer'].map(s => {
    const e = document.querySelector(s);
    if (!e) return [s, 99];
    const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((x, y) => y - x);
    return [s, (a + .05) / (b + .05)];
  });
})()"""


def check(condition, *what):
    if not condition:
        print(*what)
        sys.exit(1)


def point_at(browser, column, word):
    browser.move_to(2, 2)  # no row is there, so that scrolling brings none under the mouse
    browser.move_to(*browser.js(PLACE % (column, word)))


def check_lights(browser):
    point_at(browser, "terms", "tanh.approx")
    for column, word in (("ir", "tanh.approx"), ("ptx", "tanh.approx"), ("sass", "MUFU.TANH")):
        lit = browser.js(LIT % column)
        want = [row for row in browser.js(ROWS % column) if word in row]
        check(want, f"#{column} has no {word}")
        check(set(want) <= set(lit), f"#{column}: not all of {word} is lit:", lit)
        check(all(word in row for row in lit), f"#{column}: more is lit than {word}:", lit)
        check(browser.js(SEEN % column) > 0, f"#{column}: nothing that is lit can be seen")
    terms = browser.js(LIT % "terms")
    check(len(terms) == 1 and "tanh.approx" in terms[0], "#terms:", terms)


def check_whole_terms(browser):
    """A term of the program lights all its steps, and machine code its step."""
    point_at(browser, "terms", "silu(gate)")
    lit = browser.js(LIT % "sass")
    for word in ("FMNMX", "MUFU.TANH", "FFMA"):
        check(any(word in row for row in lit), f"silu(gate): no {word} is lit:", lit)
    check(not any("LDG" in row for row in lit), "silu(gate): a load is lit:", lit)
    point_at(browser, "sass", "MUFU.TANH")
    terms = browser.js(LIT % "terms")
    check(len(terms) == 1 and "tanh.approx" in terms[0], "from machine code, #terms:", terms)


def check_look(browser, width, scheme):
    overflow = browser.js("document.documentElement.scrollWidth - innerWidth")
    check(overflow <= 0, f"{width} pixels: the page is {overflow} pixels too wide")
    for column in ("terms", "ir", "ptx", "sass"):
        box = browser.js(f"document.getElementById('{column}').getBoundingClientRect().width")
        check(150 < box <= width, f"{width} pixels: #{column} is {box} wide")
    for name, contrast in browser.js(CONTRAST):
        check(contrast >= CONTRAST_MIN, f"{scheme}: {name} has a contrast of {contrast:.1f}")


def main():
    page = pathlib.Path(sys.argv[1]).resolve()
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if not program:
        print("SKIPPED: no Chromium to open the page with:", " ".join(PROGRAMS))
        sys.exit(77)
    text = page.read_text()
    check("http://" not in text and "https://" not in text, "the page needs something else")
    with tempfile.TemporaryDirectory(prefix="eider-page-") as profile:
        browser = Browser(program, profile)
        try:
            browser.open(page.as_uri())
            for width, height in SIZES:
                for scheme in ("light", "dark"):
                    browser.look(width, height, scheme)
                    check_whole_terms(browser)
                    check_lights(browser)
                    check_look(browser, width, scheme)
                    if len(sys.argv) > 2:
                        browser.screenshot(f"{sys.argv[2]}-{width}-{scheme}.png")
                    browser.js("scrollTo(0, 0)")
                    browser.move_to(2, 2)
                    check(not browser.js(LIT % "sass"), "something stays lit")
        finally:
            browser.process.kill()
            browser.process.wait()


if __name__ == "__main__":
    main()

"""Opens reports in headless Chromium and uses them as a person does: browser.py KIND=REPORT.html ...

Needs only the standard library, and controls chromedriver by WebDriver (https://www.w3.org/TR/webdriver2/).
"""

import base64
import json
import re
import subprocess
import sys
import time
import urllib.request

WAIT = 60.0


class Browser:
    def __init__(self):
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
        port = None
        while port is None:
            line = self.driver.stdout.readline()
            if not line:
                sys.exit("chromedriver did not start")
            found = re.search(r"started successfully on port (\d+)", line)
            port = found and found.group(1)
        self.address = f"http://127.0.0.1:{port}"
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        capabilities = {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        answer = self.ask("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
        self.session = f"/session/{answer['sessionId']}"

    def ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=WAIT) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            sys.exit(f"{method} {path}: {error.read().decode(errors='replace')[:2000]}")

    def run(self, script, *arguments):
        return self.ask("POST", f"{self.session}/execute/sync", {"script": script, "args": list(arguments)})

    def devtools(self, command, **parameters):
        return self.ask("POST", f"{self.session}/goog/cdp/execute", {"cmd": command, "params": parameters})

    def logs(self, kind):
        return self.ask("POST", f"{self.session}/se/log", {"type": kind})

    def open(self, path, width, dark=False):
        colours = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
        self.devtools("Emulation.setEmulatedMedia", features=colours)
        self.ask("POST", f"{self.session}/url", {"url": f"file://{path}"})
        self.until("return document.documentElement.hasAttribute('data-drawn')", "the page draws itself")

    def until(self, script, what):
        deadline = time.monotonic() + WAIT
        while not self.run(script):
            if time.monotonic() > deadline:
                sys.exit(f"in vain waited for: {what}; {self.logs('browser')}")
            time.sleep(0.05)

    def press(self, *keys):
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.ask("POST", f"{self.session}/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def close(self):
        self.ask("DELETE", self.session)
        self.driver.terminate()
        self.driver.wait()


ENTER, ESCAPE, TAB = "\ue007", "\ue00c", "\ue004"
CELLS = "return [...document.querySelectorAll('#trial-table tbody tr')].map(row => row.children[arguments[0]].textContent)"


def same(found, wanted, what):
    if found != wanted:
        sys.exit(f"{what}: {found!r}, not {wanted!r}")


def check_quiet(browser, path):
    """Checks that the console has no messages, and that the browser fetched nothing but the page itself."""
    same(browser.logs("browser"), [], f"console of {path}")
    events = [json.loads(entry["message"])["message"] for entry in browser.logs("performance")]
    urls = {event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"}
    same({url for url in urls if not url.startswith("data:")}, {f"file://{path}"}, "what was fetched")


def check_widths(browser, path):
    for width in (1280, 390):
        for dark in (False, True):
            browser.open(path, width, dark)
            wide = browser.run("return document.documentElement.scrollWidth")
            same(wide, width, f"width of {path}")
            ground = browser.run("return getComputedStyle(document.body).backgroundColor")
            same(ground, "rgb(20, 22, 26)" if dark else "rgb(251, 251, 250)", "ground")
    size = "const p = getComputedStyle(document.documentElement); return p.getPropertyValue(arguments[0])"
    browser.open(path, 1280)
    for wanted in ("light", "dark", "auto"):
        browser.run("document.getElementById('theme').click()")
        label = browser.run("return document.getElementById('theme').textContent")
        same(label.lower(), wanted, "colours")
        accent = browser.run(size, "--accent").strip()
        same(accent, "#6cb6f2" if wanted == "dark" else "#0060a8", f"accent in {wanted}")


def check_access(browser, path):
    """Checks that figures have a name, a text and a table, that heading levels have no gaps, and that ids are unique."""
    unnamed = browser.run(
        "return [...document.querySelectorAll('.drawing svg')].filter(svg => svg.getAttribute('role') !== 'img' "
        "|| !svg.getAttribute('aria-label') || !svg.getAttribute('aria-description')).length"
    )
    same(unnamed, 0, f"figures without a text in {path}")
    texts = browser.run("return [...document.querySelectorAll('figcaption')].every(text => text.textContent.length > 10)")
    same(texts, True, "texts of figures")
    levels = browser.run("return [...document.querySelectorAll('h1, h2, h3')].map(head => Number(head.tagName[1]))")
    same(levels.count(1), 1, "headings of the first level")
    same([b for a, b in zip(levels, levels[1:]) if b > a + 1], [], "levels that are skipped")
    twice = browser.run("const ids = [...document.querySelectorAll('[id]')].map(e => e.id); return ids.length - new Set(ids).size")
    same(twice, 0, "names that are there twice")
    browser.run("document.querySelectorAll('figure details').forEach(one => { one.open = true; })")
    browser.until("return [...document.querySelectorAll('figure details')].every(one => one.querySelector('tbody'))", "tables")


def check_table(browser, trials):
    count = lambda: browser.run("return document.querySelector('.count').textContent")
    same(count(), f"{trials} trials", "count")
    column = browser.run("return [...document.querySelectorAll('#trial-table thead th')].findIndex(th => th.textContent === 'batch_size')")
    sorts = "return document.querySelectorAll('#trial-table thead th')[arguments[0]].getAttribute('aria-sort')"
    same(browser.run(sorts, column), None, "order at first")
    browser.run("document.querySelectorAll('#trial-table thead button')[arguments[0]].focus()", column)
    for order, down in (("ascending", False), ("descending", True)):
        browser.press(ENTER)
        browser.until(f"return document.querySelectorAll('#trial-table thead th')[{column}].getAttribute('aria-sort') === '{order}'", order)
        values = [int(text) for text in browser.run(CELLS, column)]
        same(values, sorted(values, reverse=down), order)
        same(len(set(values)) > 1 or trials > 50, True, "several values")
    browser.run("document.getElementById('filter').focus()")
    browser.press(*"batch_size>=256")
    values = [int(text) for text in browser.run(CELLS, column)]
    same(all(value >= 256 for value in values) and bool(values), True, f"filtered {values}")
    same(re.fullmatch(rf"\d+ of {trials} trials", count()) is not None, True, count())
    browser.run("const f = document.getElementById('filter'); f.value = ''; f.dispatchEvent(new Event('input'))")
    browser.run("const o = document.getElementById('outcome'); o.value = 'out_of_memory'; o.dispatchEvent(new Event('change'))")
    results = browser.run("return [...document.querySelectorAll('#trial-table td.words')].map(cell => cell.textContent)")
    same(bool(results) and all("memory" in text for text in results), True, f"only out of memory: {results[:3]}")
    browser.run("const o = document.getElementById('outcome'); o.value = ''; o.dispatchEvent(new Event('change'))")
    rows = len(browser.run(CELLS, 0))
    same(rows, min(trials, 50), "rows of a page")


def check_trial(browser):
    browser.run("document.querySelector('#trial-table tbody button').focus()")
    browser.press(ENTER)
    browser.until("return document.querySelector('dialog').open", "a trial")
    same(browser.run("return document.querySelector('dialog dl') !== null"), True, "facts")
    same(browser.run("return document.querySelectorAll('dialog .readings svg').length"), 3, "readings over time")
    log = browser.run("return document.querySelector('dialog pre').textContent")
    same("the last line" in log, True, log[-200:])
    browser.press(ESCAPE)
    browser.until("return !document.querySelector('dialog').open", "the trial is closed")
    same(browser.run("return document.activeElement.closest('#trial-table') !== null"), True, "focus is back")


def main():
    browser = Browser()
    try:
        for argument in sys.argv[1:]:
            kind, path = argument.split("=", 1)
            begin = time.monotonic()
            if kind == "trials-2000":
                # The other checks draw the page several times, which takes long for 2000 trials on a busy machine.
                browser.open(path, 1280)
            else:
                check_widths(browser, path)
                check_access(browser, path)
            if kind.startswith("trials-"):
                check_table(browser, int(kind.removeprefix("trials-")))
                check_trial(browser)
            if kind == "hostile":
                check_trial(browser)
                same(browser.run("return window.hacked === undefined"), True, "a text ran")
                same(browser.run("return document.querySelectorAll('img, iframe, #page script, object').length"), 0, "elements of texts")
                text = browser.run("return document.body.textContent")
                same("onerror" in text and "\x1b" not in text, True, "texts are shown as they are")
            if kind == "nothing":
                same(browser.run("return document.querySelectorAll('figure').length"), 0, "figures of nothing")
                same("No config is feasible" in browser.run("return document.querySelector('h1').textContent"), True, "headline")
            check_quiet(browser, path)
            printed = base64.b64decode(browser.devtools("Page.printToPDF")["data"])
            same(printed[:5], b"%PDF-", "print")
            print(f"{kind}: {time.monotonic() - begin:.1f} s")
    finally:
        browser.close()
    print("all is as it should be")


main()

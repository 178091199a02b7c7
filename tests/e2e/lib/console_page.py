"""The page of `postbox console` in a browser, as a user sees it and acts on it."""

from browser import Keys

__all__ = ["Page"]

LEAST_CONTRAST = 4.5  # of texts of this size, by the WCAG
# The texts whose color is too close to what is behind them, as [contrast, element, text].
FAINT = """
    const pixel = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
    const known = new Map();
    const colorOf = (text) => {
      if (!known.has(text)) {
        pixel.clearRect(0, 0, 1, 1);
        pixel.fillStyle = text;
        pixel.fillRect(0, 0, 1, 1);
        known.set(text, [...pixel.getImageData(0, 0, 1, 1).data]);
      }
      return known.get(text);
    };
    const over = ([r, g, b, a], below) => [r, g, b].map((one, index) => (one * a + below[index] * (255 - a)) / 255);
    const light = (color) => color.map((one) => one / 255).map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4))
      .reduce((sum, one, index) => sum + one * [0.2126, 0.7152, 0.0722][index], 0);
    const found = [];
    for (const one of document.querySelectorAll("body *")) {
      const ownText = [...one.childNodes].filter((child) => child.nodeType === Node.TEXT_NODE).map((child) => child.data).join("").trim();
      if (!ownText || !one.getClientRects().length || one.closest(".hidden, :disabled")) continue;
      const around = [];
      for (let up = one; up; up = up.parentElement) around.unshift(getComputedStyle(up));
      const behind = around.reduce((below, {backgroundColor}) => over(colorOf(backgroundColor), below), [255, 255, 255]);
      const [r, g, b, a] = colorOf(around.at(-1).color);
      const text = over([r, g, b, a * around.reduce((product, {opacity}) => product * opacity, 1)], behind);
      const [dark, bright] = [light(text), light(behind)].sort((x, y) => x - y);
      const contrast = (bright + 0.05) / (dark + 0.05);
      if (contrast < arguments[0]) found.push([contrast, one.tagName + "." + one.className, ownText.slice(0, 30)]);
    }
    return found;"""


class Page:
    """What a user sees and does."""

    def __init__(self, browser, console):
        self.browser, self.console = browser, console

    def log_in(self, role, password):
        self.browser.wait_for("the log-in form", "input[autocomplete=username]")
        self.browser.press(role, Keys.TAB, password, Keys.ENTER)
        self.browser.wait_for("the page", "nav.views")

    def view(self, address, title):
        self.browser.script("location.hash = arguments[0]", f"#/{address}")
        self.browser.wait_for(f"the view {title}", lambda: self.title() == title and "Loading …" not in self.browser.text("main"))

    def title(self):
        return self.browser.script("return document.querySelector('main h1')?.firstChild.textContent ?? ''").strip()

    def rows(self):
        return self.browser.script("return [...document.querySelectorAll('main tr.row')].map((row) => row.innerText)")

    def click(self, text, within="main"):
        """The button, link or tab with this text."""
        def found():
            return next((one for one in self.browser.all(f"{within} button, {within} a") if one.text == text and one.is_enabled()), None)

        self.browser.wait_for(f"the button {text}", found).click()

    def buttons(self):
        return self.browser.script("return [...document.querySelectorAll('main button, main a')].map((one) => one.textContent)")

    def focus(self):
        return self.browser.script("const one = document.activeElement; return one.tagName + ' ' + (one.ariaLabel ?? one.textContent).slice(0, 40)")

    def hurry(self):
        """From now on the clock and the timers of the page run ten times as fast."""
        self.browser.script("""
            const [wait, clock, begun] = [window.setTimeout, Date.now, Date.now()];
            window.setTimeout = (work, ms, ...more) => wait(work, ms / 10, ...more);
            Date.now = () => begun + (clock() - begun) * 10;""")

    def seconds(self):
        """By the clock of the page."""
        return self.browser.script("return Date.now() / 1000")

    def faint_texts(self):
        return self.browser.script(FAINT, LEAST_CONTRAST)

    def open_row(self, place=0):
        self.browser.wait_for("rows", "main tr.row")
        # Not with the pointer: the content of another row may come meanwhile, and move this one.
        self.browser.script("document.querySelectorAll('main tr.row button.expand')[arguments[0]].click()", place)

    def post(self, path, body):
        """Past the buttons, but with the session and the token of the page. Returns the status."""
        return self.browser.driver.execute_async_script("""
            const [path, body, done] = arguments;
            fetch("api/session").then((answer) => answer.json()).then(({csrf}) => fetch("api/" + path, {method: "POST", body: JSON.stringify(body),
                headers: {"Content-Type": "application/json", "X-Postbox-CSRF": csrf}})).then((answer) => done(answer.status))""", path, body)

    def requests(self):
        """How many the page has sent to the API."""
        return self.browser.script("return performance.getEntriesByType('resource').filter((one) => one.name.includes('/api/')).length")

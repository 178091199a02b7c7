"""Chromium without a window, driven through chromedriver, for tests of the console's page.

    with Chromium(bed) as browser:
        browser.open(console.url)
        browser.wait_for("the form", "form input")

An error of a script, a promise that nothing catches, a violation of the page's policy, and a file of the page that cannot be loaded fail the
test: when it waits, and at the end. Answers of the API that are no 2xx do not, since pages show them. The profile and all
other files are in the directory of the testbed. Only loopback addresses have a name and can be reached: nothing is fetched from elsewhere. Chromium ends
with chromedriver, because they talk through a pipe.
"""

import base64
import pathlib
import re
import shutil

from outcome import Failure, Hopeless, wait_until
from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.chromium.remote_connection import ChromiumRemoteConnection
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

__all__ = ["Chromium", "Keys"]

FLAGS = (
    "--headless=new", "--remote-debugging-pipe", "--hide-scrollbars", "--disable-gpu", "--mute-audio",
    # The only page that is opened is ours, and containers have nothing that a sandbox is made of.
    "--no-sandbox", "--disable-dev-shm-usage",
    "--no-first-run", "--no-default-browser-check", "--no-pings", "--no-proxy-server", "--password-store=basic", "--use-mock-keychain",
    "--disable-background-networking", "--disable-component-update", "--disable-client-side-phishing-detection", "--disable-default-apps",
    "--disable-domain-reliability", "--disable-extensions", "--disable-sync", "--disable-breakpad", "--disable-crash-reporter", "--metrics-recording-only",
    "--disable-features=OptimizationHints,MediaRouter,Translate,AutofillServerCommunication,CertificateTransparencyComponentUpdater",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)


class Chromium:
    def __init__(self, bed, width=1280, height=800, scheme="light"):
        """`scheme`: what the page sees as prefers-color-scheme."""
        program = shutil.which("chromedriver")
        if not program or not shutil.which("chromium"):
            raise Failure("chromium and chromedriver are not installed: run control/install-packages")
        home = pathlib.Path(bed.directory) / "chromium"
        home.mkdir(exist_ok=True)
        port = self._start(bed, program, {name: str(home) for name in ("HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")})
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for flag in (*FLAGS, f"--user-data-dir={home}/profile", f"--window-size={width},{height}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Remote(ChromiumRemoteConnection(f"http://127.0.0.1:{port}", vendor_prefix="goog", browser_name="chrome", ignore_proxy=True), options=options)
        bed.at_close(self.close)
        self.messages = []  # of the console of the browser
        self.resize(width, height)
        self.scheme(scheme)

    def _start(self, bed, program, environment, attempts=5):
        """The port. chromedriver takes a free one of IPv6, and ends if another program has the same one of IPv4."""
        for attempt in range(attempts):
            self.lines = []
            self._process = bed.start("chromedriver", [program, "--port=0"], on_line=self.lines.append, env=environment)
            try:
                return wait_until("chromedriver listens", self._port)
            except Hopeless:
                if attempt == attempts - 1 or not any("port not available" in line for line in self.lines):
                    raise
        return None

    def _port(self):
        if not self._process.running():
            raise Hopeless(f"chromedriver has ended: {self.lines}")
        found = [re.search(r"started successfully on port (\d+)", line) for line in list(self.lines)]
        return next((match[1] for match in found if match), None)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        try:
            if kind is None:
                self.check_messages()
        finally:
            self.close()

    def close(self):
        if self.driver:
            driver, self.driver = self.driver, None
            driver.quit()

    def cdp(self, command, **parameters):
        """A command of the DevTools protocol."""
        return self.driver.execute("executeCdpCommand", {"cmd": command, "params": parameters})["value"]

    def resize(self, width, height):
        """The size of the page, without a frame."""
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def scheme(self, name):
        """light or dark"""
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def open(self, url):
        self.driver.get(url)

    def script(self, text, *arguments):
        """The value that the body of a function returns."""
        return self.driver.execute_script(text, *arguments)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        try:
            return self.driver.find_element(By.CSS_SELECTOR, selector)
        except NoSuchElementException:
            raise Failure(f"the page has no {selector}") from None

    def text(self, selector="body"):
        return self.one(selector).text

    def wait_for(self, what, condition):
        """`condition` is a selector of an element that is shown, or a function. Returns the element, or what the function returns."""
        def holds():
            self.check_messages()
            try:
                if callable(condition):
                    return condition()
                return next((element for element in self.all(condition) if element.is_displayed()), None)
            except StaleElementReferenceException:  # it was drawn again meanwhile
                return None

        try:
            return wait_until(what, holds)
        except Hopeless:
            raise
        except Failure as failure:
            raise Failure(f"{failure}\n  the page shows:\n{self.text()}") from None

    def fill(self, selector, text):
        field = self.one(selector)
        field.clear()
        field.send_keys(text)

    def press(self, *keys):
        """Keys, to the element that has the focus."""
        self.driver.switch_to.active_element.send_keys(*keys)

    def screenshot(self, path):
        pathlib.Path(path).write_bytes(base64.b64decode(self.driver.get_screenshot_as_base64()))

    def check_messages(self):
        self.messages += self.driver.get_log("browser")
        wrong = [message["message"] for message in self.messages if message["level"] == "SEVERE" and not _is_answer_of_api(message)]
        if wrong:
            raise Hopeless("the browser reports errors:\n" + "\n".join(wrong))


def _is_answer_of_api(message):
    return message["source"] == "network" and re.search(r"/api/\S+ - Failed to load resource: the server responded with a status of", message["message"])

"""The page of tools/report.py whose pictures a script draws: what it holds beside the files of its
runs, what it does in headless Chromium, and --serve, the page of a run that goes on. Skipped without
Plotly (Debian's python3-plotly)."""
import base64
import gzip
import html
import http.client
import json
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from report_test import PACKAGES, PYTHON, TOOLS, make_run, run_tool  # noqa: E402

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
                None)
PLOTLY = subprocess.run([PYTHON, "-c", "from plotly.offline import get_plotlyjs"],
                        capture_output=True, check=False).returncode == 0
if not PACKAGES or not PLOTLY:
    print("skipped: python3-plotly, python3-pandas, python3-matplotlib or python3-yaml is not "
          "installed", file=sys.stderr)
    sys.exit(77)
LOOK = pathlib.Path(__file__).with_name("report_live_in_browser.js").read_text(encoding="utf-8")
MOST = 3 << 20  # bytes of a page of small runs


def make_two(folder):
    """Two runs; the second has other losses and loses less."""
    runs = [make_run(folder / "a", "first_run", "none"),
            make_run(folder / "b", "second_run", "adaptive", 8.0)]
    steps = (runs[1] / "steps.csv").read_text().splitlines()
    (runs[1] / "steps.csv").write_text("\n".join(steps[:1] + [
        f"{s},1,{3 / s + 0.01 * (s % 5)},0.5,{0.1 / s},65536,0,0,1" for s in range(1, 101)]) + "\n")
    rows = (runs[1] / "underflow.csv").read_text()
    (runs[1] / "underflow.csv").write_text(rows.replace(",34.5,34.5,", ",10,10,"))
    return runs


def data_of(page):
    """What the script draws."""
    packed = re.search(r'<script type="text/plain" id="data">([^<]*)</script>', page).group(1)
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def chromium(address, folder):
    """The document after its scripts have run."""
    return subprocess.run(
        [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1300,900",
         f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=30000", "--dump-dom",
         address], capture_output=True, text=True, check=True, timeout=900).stdout


class PageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.runs = make_two(cls.folder)
        done = run_tool(*cls.runs, "-o", cls.folder / "page.html", still=False)
        if done.returncode or done.stderr:
            raise AssertionError(done.stderr)
        cls.page = (cls.folder / "page.html").read_text(encoding="utf-8")
        cls.data = data_of(cls.page)
        cls.pictures = {one["name"]: one for one in cls.data["pictures"]}

    def test_it_loads_nothing_and_is_small(self):
        self.assertLess(len(self.page), MOST)
        self.assertIsNone(re.search(r"(?i)<link|@import|url\(", self.page))
        for value in re.findall(r'<[^>]* (?:src|href)="([^"]*)"', self.page):
            self.assertRegex(value, r"^#\w+$")

    def test_lines_are_the_columns_of_the_files(self):
        loss = next(p for p in self.pictures["training"]["panels"] if p["title"].startswith("Loss"))
        line = next(one for one in loss["lines"] if one["run"] == "second_run" and "smooth" in one)
        rows = [row.split(",") for row in
                (self.runs[1] / "steps.csv").read_text().splitlines()[1:]]
        self.assertEqual(line["x"], [int(row[0]) for row in rows])
        for found, row in zip(line["y"], rows):
            self.assertAlmostEqual(found / float(row[2]), 1, places=3)

    def test_cells_are_the_rows_of_the_files(self):
        picture = self.pictures["underflow"]
        for panel, most in zip(picture["panels"], ("34.5 %", "10 %")):
            heat = panel["heat"]
            row, column = heat["rows"].index("bn1"), heat["places"].index("step 20")
            self.assertEqual(picture["words"][heat["index"][row][column]], most)
        self.assertEqual(self.data["worst"], ["bn1", "fc", "loss"])

    def test_a_picture_without_information_is_a_sentence(self):
        with tempfile.TemporaryDirectory() as scratch:
            run = make_run(pathlib.Path(scratch) / "run")
            for name in ("underflow.csv", "scales.csv"):
                text = (run / name).read_text()
                text = re.sub(r",(fp16),[\d.]+,100,.*?,5,0,0,0,", r",\1,1.0,100,0,0,0,0,0,0,0,0,0,0,",
                              text)
                (run / name).write_text(text.replace("2,2,target", "1,1,none"))
            done = run_tool(run, "-o", run / "page.html", still=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            page = (run / "page.html").read_text(encoding="utf-8")
            drawn = {one["name"] for one in data_of(page)["pictures"] if "panels" in one}
            for name in ("scale", "scale_spread", "underflow"):
                self.assertIn(f'<p class="nothing" id="picture-{name}">', page)
                self.assertNotIn(name, drawn)
            self.assertIn("Learning rate: 0.1 all the time.", page)
            self.assertIn("training", drawn)

    def test_the_first_screen_has_the_loss_beside_the_baselines(self):
        section = self.page[self.page.index('id="verdict"'):self.page.index('id="advice"')]
        self.assertLess(self.page.index('id="verdict"'), self.page.index("<figure"))
        self.assertIn("minus first_run", section)
        self.assertIn("+0.0000", section)  # both were evaluated at 0.4
        done = run_tool(*self.runs, "-o", self.folder / "b.html", "--baseline", "second_run",
                        "--title", "x")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("minus second_run", (self.folder / "b.html").read_text())
        done = run_tool(*self.runs, "-o", self.folder / "c.html", "--baseline", "third")
        self.assertEqual(done.returncode, 2)
        self.assertIn("choose from first_run, second_run", done.stderr)

    def test_without_plotly_it_says_what_to_install_and_names_static(self):
        (self.folder / "without").mkdir()
        (self.folder / "without/plotly.py").write_text("raise ImportError('No module plotly')\n")
        page, there = self.folder / "none.html", {"PYTHONPATH": str(self.folder / "without")}
        done = run_tool(self.runs[0], "-o", page, environment=there, still=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("apt-get install python3-plotly", done.stderr)
        self.assertIn("--static", done.stderr)
        self.assertFalse(page.exists())
        self.assertEqual(run_tool(self.runs[0], "-o", page, environment=there).returncode, 0)
        self.assertNotIn("<script", page.read_text())

    @unittest.skipUnless(CHROMIUM, "chromium is missing")
    def test_in_chromium(self):
        looked = self.folder / "looked.html"
        looked.write_text(self.page.replace("</body>", f"<script>{LOOK}</script></body>"),
                          encoding="utf-8")
        frames = "".join(f'<iframe src="looked.html#{width}" style="width:{width}px;height:800px">'
                         "</iframe>" for width in (400, 1240))
        (self.folder / "frames.html").write_text(
            "<!DOCTYPE html><meta charset='utf-8'><body><script>addEventListener('message', event => "
            "{const pre = document.createElement('pre'); pre.textContent = JSON.stringify("
            f"event.data); document.body.append(pre);}});</script>{frames}", encoding="utf-8")
        text = chromium((self.folder / "frames.html").as_uri(), self.folder)
        found = {one["asked"]: one for one in
                 (json.loads(html.unescape(t)) for t in re.findall(r"<pre>(.*?)</pre>", text))}
        self.assertEqual(set(found), {400, 1240}, text[-500:])
        drawn = sum("panels" in one for one in self.data["pictures"])
        for one in found.values():
            self.assertEqual((one["trouble"], one["drawn"], one["plots"]), ("", drawn, drawn))
            self.assertLessEqual(one["scrollWidth"], one["width"])
            self.assertEqual(one["wide"], [])
            self.assertEqual(one["worst"], ["bn1", "fc", "loss"])
            self.assertEqual(one["network"], ["bn1", "fc", "loss"])
            self.assertEqual(one["filtered"], ["fc"])
            self.assertEqual((one["panels"], one["panelsOfOne"]), (2, 1))
            self.assertEqual((one["lines"], one["linesOfOne"]), (2, 1))
            self.assertEqual(one["tip"], "bn1, step 20: 34.5 %")
            # Means over 40 of 400 of the steps are calmer than the steps.
            self.assertLess(one["smooth"], 0.8 * one["rough"])
            self.assertLess(one["zoomed"][1] - one["zoomed"][0], 60)  # of 100 steps
            self.assertEqual(one["zoom"], one["zoomed"])


class ServeTest(unittest.TestCase):
    """One server for all of them; the last one ends it."""

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.run_folder = make_run(cls.folder / "run", "goes_on", drop=("summary.json",))
        cls.process = subprocess.Popen([str(TOOLS / "report.py"), cls.run_folder, "--serve"],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        cls.addClassCleanup(cls.process.communicate)
        cls.addClassCleanup(cls.process.kill)
        cls.address = cls.process.stdout.readline().strip()
        cls.port, cls.token = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/([\w-]{16,})/",
                                           cls.address).groups()

    def ask(self, path, method="GET", body=None, **headers):
        link = http.client.HTTPConnection("127.0.0.1", int(self.port), timeout=600)
        link.request(method, path, body, headers)
        answer = link.getresponse()
        data = answer.read()
        link.close()
        if answer.getheader("Content-Encoding") == "gzip" and data:
            data = gzip.decompress(data)
        return answer, data.decode("utf-8", "replace")

    def test_1_it_answers_its_own_names_to_who_has_the_token(self):
        secret = "the secret of the user"
        (self.folder / "secret.txt").write_text(secret)
        mine = f"/{self.token}/"
        answer, text = self.ask(mine)
        self.assertEqual(answer.status, 200)
        self.assertIn("plotly.js", text)
        self.assertIn("default-src 'none'", answer.getheader("Content-Security-Policy"))
        for path in ("/", "/content", "/x/content", f"/{self.token[:-1]}/content",
                     f"//{self.token}x/", "/../secret.txt", "/%2e%2e/secret.txt"):
            with self.subTest(path):
                self.assertEqual(self.ask(path)[0].status, 403)
        for path in ("../secret.txt", "../../../../etc/passwd", "%2e%2e/secret.txt", "config.yaml",
                     "steps.csv", f"{self.run_folder}/steps.csv", "content/../../secret.txt"):
            with self.subTest(path):
                answer, text = self.ask(mine + path)
                self.assertEqual(answer.status, 404)
                self.assertNotIn(secret, text)
        for method in ("POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "NONSENSE"):
            with self.subTest(method):
                answer, _ = self.ask(mine, method, "x" if method == "POST" else None)
                self.assertEqual((answer.status, answer.getheader("Allow")), (405, "GET"))
        self.assertEqual(self.ask(mine, Host="a.stranger")[0].status, 403)

    def test_2_the_content_follows_the_files(self):
        answer, text = self.ask(f"/{self.token}/content")
        tag = answer.getheader("ETag")
        self.assertEqual(answer.status, 200)
        self.assertIn("goes_on", json.loads(text)["html"])
        again, text = self.ask(f"/{self.token}/content", **{"If-None-Match": tag})
        self.assertEqual((again.status, text), (304, ""))
        with open(self.run_folder / "steps.csv", "a", encoding="utf-8") as file:
            file.write("31,1,0.25,0.5,0.1,32768,0,0,1\n77,1,0.125,0.5,0.1,327")  # a torn line
        end = time.monotonic() + 600
        while time.monotonic() < end:
            answer, text = self.ask(f"/{self.token}/content", **{"If-None-Match": tag})
            if answer.status == 200:
                break
            time.sleep(0.5)
        self.assertNotEqual(answer.getheader("ETag"), tag)
        pictures = {one["name"]: one for one in json.loads(json.loads(text)["data"])["pictures"]}
        line = pictures["training"]["panels"][0]["lines"][0]
        self.assertEqual((line["x"][-1], line["y"][-1]), (31, 0.25))

    def test_5_it_ends_cleanly_and_a_port_that_is_taken_is_an_error(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            done = run_tool(self.run_folder, "--serve", taken.getsockname()[1], still=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("cannot be used (Address already in use)", done.stderr)
        self.process.send_signal(signal.SIGINT)
        self.assertEqual(self.process.wait(60), 0)
        self.assertEqual(self.process.stderr.read(), "")

    def test_3_words_of_the_command_line(self):
        for words, text in ((["--serve", "x"], "is no port"), (["--serve", "-o", "x.html"],
                            "leave -o"), ([], "-o/--output, or --serve")):
            done = run_tool(self.run_folder, *words, still=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn(text, done.stderr)

    @unittest.skipUnless(CHROMIUM, "chromium is missing")
    def test_4_in_chromium(self):
        text = chromium(self.address, self.folder)
        self.assertIn('data-ready="yes"', text)
        self.assertRegex(text, r'id="fresh">read at \d')
        self.assertIn('id="picture-training"', text)
        self.assertIn("main-svg", text)


if __name__ == "__main__":
    unittest.main()

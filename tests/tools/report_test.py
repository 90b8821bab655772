"""tools/report.py on small folders made by hand: what the page holds, that it needs nothing else,
and what it does with runs that were cut off."""
import os
import pathlib
import re
import shutil
import socket
import stat
import struct
import subprocess
import tempfile
import unittest
import zlib

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
if "ADA_BINARY" in os.environ:  # the build that is tested, which the page asks for advice
    os.environ.setdefault("ADA_TRAIN", os.environ["ADA_BINARY"])

PYTHON = "/usr/bin/python3"  # the tool's own
PACKAGES = subprocess.run([PYTHON, "-c", "import pandas, matplotlib, yaml"], capture_output=True,
                          check=False).returncode == 0
SECTIONS = ["verdict", "advice", "runs", "config", "training", "scale", "underflow", "limits", "histograms",
            "probes", "what_if", "events", "timing"]
PICTURES = {"training", "scale", "scale_spread", "underflow", "underflow_difference",
            "underflow_worst", "limits", "histograms", "histograms_time", "probe_error",
            "probe_lost", "what_if", "events", "timing"}
LAYERS = ["conv1", "bn1", "fc"]
STEPS = [1, 10, 20, 30]


def run_tool(*arguments, environment=None, still=True):
    """The tool; `still`: with still pictures, which need no Plotly."""
    return subprocess.run([str(TOOLS / "report.py"), *map(str, arguments), *["--static"][:still]],
                          capture_output=True, text=True, check=False,
                          env={**os.environ, **(environment or {})})


def python(code, *arguments):
    """Output of a snippet in the tool's Python, with the tool's modules at hand."""
    place = str(TOOLS / "python")
    return subprocess.run([PYTHON, "-c", f"import sys; sys.path.insert(0, {place!r})\n" + code,
                           *map(str, arguments)], capture_output=True, text=True, check=True).stdout


def underflow_rows(scale):
    rows = ["step,epoch,layer,tensor,format,scale,numel,zeros_before,zeros_after,underflow,"
            "underflow_pct_nonzero,underflow_pct_numel,below_min_pct,subnormal,overflow,inf,nan,"
            "min_abs,max_abs,mean,std,l1,l2,range_log2,mse,sqnr_db,zero_denominators"]
    for step in STEPS:  # a backward pass: from the loss to the input
        for i, layer in enumerate(["loss", "fc", "bn1"]):
            lost = 34.5 if layer == "bn1" and step == 20 else 2 * i
            rows.append(f"{step},1,{layer},dx,fp16,{scale * 2 ** i},100,0,{lost:.0f},{lost:.0f},"
                        f"{lost},{lost},{lost},5,0,0,0,1e-9,1e-3,0,1e-4,1,1,20,,,")
    return rows


def histogram_rows(scale):
    rows = ["step,epoch,layer,tensor,scale,exponent,count"]
    for step in STEPS:
        for i, layer in enumerate(["loss", "fc", "bn1"]):
            rows.append(f"{step},1,{layer},dx,{scale * 2 ** i},zero,3")
            rows += [f"{step},1,{layer},dx,{scale * 2 ** i},{e},{e + 41}" for e in range(-40, -9)]
            rows.append(f"{step},1,{layer},dx,{scale * 2 ** i},inf,1")
    return rows


def files(name, policy, scale):
    """A run's files as lines, name -> lines."""
    scales = ["step,epoch,layer,policy,scale_in,unbound,bound,pow2,alpha,scale_out,limit"]
    probes = ["step,epoch,layer,tensor,format,scale,numel,nonzero,lost,lost_pct,mse,sqnr_db,cosine,norm_over_noise"]
    what_if = ["step,epoch,layer,tensor,scenario,format,scale,underflow_pct_nonzero,overflow,"
               "underflow_unsure_pct,overflow_unsure"]
    for step in STEPS:
        scales += [f"{step},1,fc,{policy},1,2.1,2.1,2,2,2,target",
                   f"{step},1,bn1,{policy},2,,,,,2,branch"]
        for layer in ["loss", "fc", "bn1"]:
            error = "inf" if layer == "loss" else "21.5"
            probes.append(f"{step},1,{layer},dx,fp16,1,100,100,7,7,1e-12,{error},0.99,")
            what_if += [f"{step},1,{layer},dx,scale=1024,fp16,1024,0.5,0,0.25,0",
                        f'{step},1,{layer},dx,"format=fp8_e5m2, much",fp8_e5m2,1,40,3,1,0']
    return {
        "config.yaml": [f"name: {name}", "seed: 1", f"output: runs/{name}", "model: {zoo: lenet}",
                        f"scaling: {{policy: {policy}, init_scale: 1}}"],
        "summary.json": [f'{{"name": "{name}", "status": "finished", "model": "lenet", "dataset": '
                         f'"synthetic", "format": "fp16", "policy": "{policy}", "train": {{"loss": '
                         '0.5, "accuracy": 0.75}}'],
        "steps.csv": ["step,epoch,loss,accuracy,lr,scale,overflow,skipped,grad_norm"]
        + [f"{s},1,{2 / s},0.5,0.1,{65536 >> (s > 7)},{int(s == 7)},{int(s == 7)},1"
           for s in range(1, 31)],
        "evaluation.csv": ["step,epoch,split,images,loss,top1,top5", "30,1,test,100,0.4,0.8125,1"],
        "scales.csv": scales,
        "underflow.csv": underflow_rows(scale),
        "histograms.csv": histogram_rows(scale),
        "probes.csv": probes,
        "what_if.csv": what_if,
        "events.csv": ["step,epoch,event,layer,tensor,value,message",
                       '7,1,skip,fc,dw,inf,"not finite, skipped; <first>: fc.dw"',
                       "7,1,scale_change,,,32768,scale 65536 -> 32768: overflow"],
        "timing.csv": ["step,seconds,images_per_second,data,forward,backward,update,log,tokens"]
        + [f"{s},1,100,0.1,0.2,0.5,0.1,0.01," for s in STEPS],
    }


def make_run(folder, name="a", policy="none", scale=1.0, drop=()):
    folder.mkdir(parents=True)
    for file, lines in files(name, policy, scale).items():
        if file not in drop:
            (folder / file).write_text("\n".join(lines) + "\n")
    return folder


def png_pixels(data):
    """Width, height and the filtered bytes of a PNG."""
    if data[:8] != b"\x89PNG\r\n\x1a\n":
        raise ValueError("no PNG")
    at, packed, size = 8, b"", None
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        if kind == b"IHDR":
            size = struct.unpack(">II", body[:8])
        elif kind == b"IDAT":
            packed += body
        at += 12 + length
    return size, zlib.decompress(packed)


@unittest.skipUnless(PACKAGES, "python3-pandas, python3-matplotlib or python3-yaml is missing")
class PageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        first = make_run(cls.folder / "a", "first_run", "none")
        second = make_run(cls.folder / "b", "second_run", "adaptive", 8.0)
        cls.result = run_tool(first, second, "-o", cls.folder / "page.html", "--png",
                              cls.folder / "png", "--title", "None & <adaptive>")
        page = cls.folder / "page.html"
        cls.page = page.read_text() if page.exists() else ""

    def test_says_nothing_when_all_is_well(self):
        self.assertEqual((self.result.returncode, self.result.stdout, self.result.stderr),
                         (0, "", ""))

    def test_sections(self):
        self.assertEqual(re.findall(r'<section id="(\w+)">', self.page), SECTIONS)
        self.assertFalse('class="absent"' in self.page)
        self.assertTrue("<title>None &amp; &lt;adaptive&gt;</title>" in self.page)

    def test_needs_nothing_else(self):
        self.assertIsNone(re.search(r"(?i)<script|<link|@import|url\(|https?://", self.page))
        for value in re.findall(r'(?:src|href)="([^"]*)"', self.page):
            self.assertIsNotNone(re.match(r"#\w+$|data:image/png;base64,", value), value[:80])
        self.assertEqual(len(re.findall(r'src="data:', self.page)), len(PICTURES))

    def test_what_differs(self):
        table = self.page[self.page.index('id="config"'):self.page.index("config.yaml of")]
        self.assertIn("<td>scaling.policy</td><td>none</td><td>adaptive</td>", table)
        self.assertNotIn("seed", table)
        self.assertNotIn("output", table)

    def test_sentences_come_from_the_data(self):
        for text in ["bn1 loses most, 11.6 % of its non-zero dx on average and 34.5 % at step 20",
                     "first_run: from 1 (loss, step 1) to 4 (bn1, step 1)",
                     "second_run: from 8 (loss, step 1) to 2^5 (bn1, step 1)",
                     "first_run: target 100 %",
                     "1 × scale_change, 1 × skip",
                     "top-1 81.25 % (test, step 30), 1 step skipped",
                     "least is lost under “scale=1024”: 0.5 %, and nothing would overflow"]:
            self.assertTrue(text in self.page, text)

    def test_words_of_limits_and_events_are_explained(self):
        self.assertTrue("gradients of several layers were brought to one scale" in self.page)
        self.assertFalse("held at scale_upper_bound" in self.page)  # occurs in no run
        self.assertTrue("skipped; &lt;first&gt;: fc.dw" in self.page)

    def test_pictures(self):
        made = {path.stem: path.read_bytes() for path in (self.folder / "png").iterdir()}
        self.assertEqual(set(made), PICTURES)
        for name, data in made.items():
            with self.subTest(name):
                (width, height), pixels = png_pixels(data)
                self.assertGreater(width, 1200)
                self.assertGreater(height, 150)
                self.assertGreater(len(set(pixels)), 40)  # drawn, not one color

    def test_network_order(self):
        code = ("from ada_train.report import layers, load\n"
                "print(*layers.common_order(load.read_runs(sys.argv[1:])))")
        self.assertEqual(python(code, self.folder / "a").split(), ["bn1", "fc", "loss"])
        forward = make_run(self.folder / "c", "c")
        lines = underflow_rows(1)
        y = [lines[1].replace(",loss,dx", f",{name},y") for name in ["conv1", "bn1", "pool", "fc"]]
        (forward / "underflow.csv").write_text("\n".join(lines[:1] + y + lines[1:]) + "\n")
        self.assertEqual(python(code, forward, self.folder / "a").split(),
                         ["conv1", "bn1", "pool", "fc", "loss"])

    def test_grids(self):
        code = ("import numpy, pandas\nfrom ada_train.report import layers\n"
                "t = pandas.DataFrame({'step': [1, 10, 10, 20], 'layer': list('abab')})\n"
                "names = ['a', 'b']\n"
                "g = layers.grid(t, layers.codes(t['layer'], names), names, [1, 2, 3, 4])\n"
                "print(g.edges.tolist(), g.values.tolist())")
        self.assertEqual(python(code).strip(),
                         "[1.0, 10.0, 20.0, 29.5] [[1.0, 3.0, nan], [nan, 2.0, 4.0]]")


@unittest.skipUnless(PACKAGES, "python3-pandas, python3-matplotlib or python3-yaml is missing")
class OperandsTest(unittest.TestCase):
    """Runs with operands in block-scaled formats."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def make_run(self, name, worst):
        """`worst`: dB of fc.dw.dy at step 20; all others have 30 dB."""
        run = make_run(self.folder / name, name)
        lines = ["step,epoch,layer,tensor,format,lost_pct_nonzero,scale_log2_min,scale_log2_max,"
                 "scale_log2_mean,scale_log2_std,sqnr_db,sqnr_mean_db,sqnr_worst_db,norm_over_noise"]
        for step in STEPS:
            for layer in ("fc", "bn1"):
                for operand in ("forward.x", "forward.w", "dx.dy", "dx.w", "dw.x", "dw.dy"):
                    here = (layer, operand, step) == ("fc", "dw.dy", 20)
                    db = worst if here else 30
                    noise = 10 ** (db / 20) if operand.endswith("dy") else ""
                    lines.append(f"{step},1,{layer},{operand},nvfp4,1,{-40 if here else -12},3,-4,2,"
                                 f"{db},{db},{db},{noise}")
        (run / "blocks.csv").write_text("\n".join(lines) + "\n")
        return run

    def test_section_and_pictures(self):
        a, b = self.make_run("a", 4), self.make_run("b", 20)
        page = self.folder / "page.html"
        done = run_tool(a, b, "-o", page, "--png", self.folder / "png")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        text = page.read_text()
        sections = re.findall(r'<section id="(\w+)">', text)
        self.assertEqual(sections, SECTIONS[:10] + ["operands"] + SECTIONS[10:])
        made = {path.stem: path.read_bytes() for path in (self.folder / "png").iterdir()}
        self.assertEqual(set(made), PICTURES | {"operand_sqnr", "operand_scales"})
        for name in ("operand_sqnr", "operand_scales"):
            (width, height), pixels = png_pixels(made[name])
            self.assertGreater(width, 1200)
            self.assertGreater(len(set(pixels)), 40)
        # (30 * 3 + 4) / 4 dB; 10^(4/20) = 1.58 is below the square root of 3.
        for words in ("a: fc.dw.dy is worst with 23.5 dB on average; the norm of fc.dw.dy is 1.58 "
                      "times that of its errors at step 20, the least of all gradients; below √3 "
                      "training is said to stall",
                      "b: fc.dw.dy is worst with 27.5 dB on average; the norm of fc.dw.dy is 10 "
                      "times that of its errors at step 20, the least of all gradients.",
                      "a: the scales of fc.dw.dy lie furthest apart, 43 powers of two at step 20"):
            self.assertTrue(words in text, words)

    def test_operands_by_layer_and_step_and_scenarios_of_blocks(self):
        run = self.make_run("a", 4)
        more = [f"{step},1,{layer},dx.dy,nvfp4,1,100,0,{lost},{lost},{lost},{lost},{lost},5,0,0,0,"
                "1e-9,1e-3,0,1e-4,1,1,20,," for step in STEPS
                for layer, lost in (("fc", 24.5 if step == 10 else 3), ("bn1", 2))]
        with open(run / "underflow.csv", "a", encoding="utf-8") as file:
            file.write("\n".join(more) + "\n")
        lines = ["step,epoch,layer,tensor,scenario,format,scale,numel,zeros,saturated,"
                 "lost_pct_nonzero,sqnr_db"]
        for scenario, decibel, saturated in (("floor", 18.25, 7), ("rceil", 31.5, 0)):
            lines += [f"{step},1,{layer},{operand},{scenario},mxfp8_e4m3,1,200,100,{saturated},0.5,"
                      f"{decibel + 5 * (operand == 'dx.w')}" for step in STEPS
                      for layer in ("fc", "bn1") for operand in ("dx.dy", "dx.w")]
        (run / "what_if_blocks.csv").write_text("\n".join(lines) + "\n")
        page = self.folder / "page.html"
        done = run_tool(run, "-o", page, "--png", self.folder / "png", "--tensor", "dx.dy")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        made = {path.stem for path in (self.folder / "png").iterdir()}
        self.assertTrue({"underflow", "what_if_operands"} <= made, made)
        text = page.read_text()
        # (24.5 + 3 * 3) / 4; 7 of the 100 values that are not zero.
        for words in ("fc</code> loses most: 8.38 %", "24.5 % at step 10",
                      "under “floor” ", "is worst with 18.2 dB on average; of an operand 0.5 % are "
                      "lost and 7 % saturate at most", "under “rceil” ", "31.5 dB"):
            self.assertTrue(words in text, words)

    def test_what_was_counted_and_what_a_broken_run_needs_are_the_programs_words(self):
        run = self.make_run("a", 4)
        (run / "summary.json").write_text(
            '{"name": "a", "status": "finished", "counted": {"text": "fc.dx.dy lost most, 23 % on '
            'the mean, of dx and operands, 11 of 250 steps"}, "not_finite": {"since": 7, "layer": '
            '"fc", "tensor": "y", "largest": "7e4", "advice": "gradients were lost before that"}}')
        page = self.folder / "page.html"
        done = run_tool(run, "-o", page)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        text = page.read_text()
        self.assertTrue("lost most, 23 % on the mean, of dx and operands, 11 of 250 steps" in text)
        self.assertTrue("7e4): gradients were lost before that" in text)
        self.assertFalse("loses most:" in text)

    def test_runs_without(self):
        page = self.folder / "page.html"
        done = run_tool(make_run(self.folder / "c", "c"), "-o", page)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertFalse('id="operands"' in page.read_text())
        with_some = self.make_run("a", 4)
        done = run_tool(with_some, self.folder / "c", "-o", page)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue("No rows of blocks.csv" in page.read_text())

    def test_the_gauge_of_probes(self):
        run = make_run(self.folder / "run")
        lines = (run / "probes.csv").read_text().splitlines()
        noise = {"loss": "inf", "fc": "1.5", "bn1": "12"}
        lines = lines[:1] + [line + noise[line.split(",")[2]] for line in lines[1:]]
        (run / "probes.csv").write_text("\n".join(lines) + "\n")
        page = self.folder / "page.html"
        done = run_tool(run, "-o", page)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue("the norm of fc.dx is 1.5 times that of its errors at step 1, the least of "
                        "all gradients; below √3 training is said to stall" in page.read_text())


@unittest.skipUnless(PACKAGES, "python3-pandas, python3-matplotlib or python3-yaml is missing")
class RobustTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.page = self.folder / "page.html"

    def report(self, *arguments):
        result = run_tool(*arguments, "-o", self.page)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return self.page.read_text()

    def says(self, page, *texts):
        for text in texts:
            self.assertTrue(text in page, text)  # assertIn would print the whole page

    def test_killed_run(self):
        run = make_run(self.folder / "run", drop=("summary.json",))
        for path in run.glob("*.csv"):
            data = path.read_bytes()
            path.write_bytes(data[:len(data) - 4])
        page = self.report(run)
        self.says(page, "still running, or killed")
        self.assertEqual(page.count("the last line is cut off"), len(list(run.glob("*.csv"))))
        self.assertEqual(re.findall(r'<section id="(\w+)">', page), SECTIONS)

    def test_every_length_of_a_file_reads_as_its_whole_rows(self):
        data = ("step,epoch,event,layer,tensor,value,message\n"
                '1,1,skip,a,dx,1,"x, ""y"""\n2,1,b,,,,z\n')
        folder = self.folder / "run"
        folder.mkdir()
        code = ("import pathlib\nfrom ada_train.report import load\n"
                "data = pathlib.Path(sys.argv[1] + '/all').read_bytes()\n"
                "for n in range(len(data) + 1):\n"
                "    pathlib.Path(sys.argv[1] + '/events.csv').write_bytes(data[:n])\n"
                "    frame = load.read_table(sys.argv[1], 'events', [])\n"
                "    print(len(frame), *frame['message'])")
        (folder / "all").write_text(data)
        header, first = data.index("\n") + 1, data.index("\n2,") + 1
        expected = ["0"] * first + ['1 x, "y"'] * (len(data) - first) + ['2 x, "y" z']
        self.assertGreater(first, header)
        self.assertEqual(python(code, folder).splitlines(), expected)

    def test_empty_and_missing_files_name_the_key(self):
        run = make_run(self.folder / "run", drop=("histograms.csv", "probes.csv", "config.yaml"))
        (run / "what_if.csv").write_text("")
        (run / "events.csv").write_text("step,epoch,event,layer,tensor,value,message\n")
        page = self.report(run)
        self.says(page, "No rows of histograms.csv: log.histogram_every makes it",
                  "No rows of probes.csv: log.probe_every makes it",
                  "No rows of what_if.csv: log.what_if makes it", "Nothing happened",
                  "config.yaml is missing")

    def test_a_dead_gradient_comes_first(self):
        run = make_run(self.folder / "run")
        rows = (run / "underflow.csv").read_text().splitlines()
        header = rows[0].split(",")
        dead = []
        for line in rows[1:]:
            row = dict(zip(header, line.split(",")))
            if row["tensor"] == "dx" and row["layer"] != "loss":
                row.update(numel="100", zeros_before="100", zeros_after="100", underflow="0",
                           underflow_pct_nonzero="")
            dead.append(",".join(row[name] for name in header))
        (run / "underflow.csv").write_text("\n".join([rows[0]] + dead) + "\n")
        page = self.report(run)
        self.says(page, "<b>no gradient</b>: it died at loss.dx, the last tensor that still had "
                        "values; ", "a: no gradient: it died at loss.dx")
        self.assertNotIn("loses most: ", page[:page.index("no gradient")])

    def test_configurations_that_cannot_be_read_are_not_called_equal(self):
        runs = [make_run(self.folder / name, name=name) for name in ("a", "b")]
        (runs[0] / "config.yaml").write_text("a: [1\n")
        page = self.report(*runs)
        self.says(page, "Not compared: config.yaml is missing or cannot be read in a.")
        self.assertFalse("The configurations are equal" in page)

    def test_without_pyyaml_it_ends_with_what_to_install(self):
        (self.folder / "yaml.py").write_text("raise ImportError('No module named yaml')\n")
        runs = [make_run(self.folder / name) for name in ("x", "y")]
        result = run_tool(*runs, "-o", self.page, environment={"PYTHONPATH": str(self.folder)})
        self.assertEqual(result.returncode, 1)
        self.assertIn("No module named yaml: apt-get install", result.stderr)
        self.assertFalse(self.page.exists())

    def test_nothing_but_a_config(self):
        run = self.folder / "run"
        run.mkdir()
        (run / "config.yaml").write_text("name: early\nmodel: {zoo: mlp}\n")
        page = self.report(run)
        self.says(page, "early", "No rows of steps.csv")

    def test_missing_columns_and_broken_rows(self):
        run = make_run(self.folder / "run", drop=("scales.csv",))
        (run / "steps.csv").write_text("step,loss\n1,2.5\n2,oops\n,\n3,inf\n4,1,2,3\n5,nan\n")
        (run / "config.yaml").write_text("a: [1\n")
        (run / "summary.json").write_text("{")
        page = self.report(run)
        self.says(page, "steps.csv has no column epoch, accuracy, lr, scale",
                  "No rows of scales.csv", "config.yaml cannot be read",
                  "summary.json cannot be read")

    def test_runs_of_different_layers(self):
        first = make_run(self.folder / "a", "same")
        second = make_run(self.folder / "b", "same")
        for name in ("underflow", "scales", "histograms", "probes", "what_if"):
            path = second / f"{name}.csv"
            path.write_text(path.read_text().replace(",fc,", ",stage1.block1.conv1,"))
        page = self.report(first, second, "--tensor", "dx")
        self.says(page, f"same ({first})")  # equal names are told apart by folder
        self.says(page, "The configurations are equal")

    def test_other_tensor(self):
        run = make_run(self.folder / "run")
        page = self.report(run, "--tensor", "dw")
        self.says(page, "underflow.csv has no rows of dw: log.statistics chooses the tensors")

    def test_updates_that_changed_nothing(self):
        run = make_run(self.folder / "a")
        with open(run / "underflow.csv", "a", encoding="utf-8") as file:
            for step in STEPS:
                for layer, lost in (("conv1", 100 if step == 30 else 62.5), ("fc", 12.5)):
                    same = round(lost * .8)
                    file.write(f"{step},1,{layer},update,bf16,1,80,0,{same},{same},{lost},{lost},"
                               f"{lost},0,0,0,0,1e-9,1e-3,0,1e-4,1,1,20,,\n")
        page = self.report(run, "--tensor", "update")
        self.says(page, "update was to change a weight, which is what it was after "
                        "rounding to the format of the masters", "black: no weight of the layer moved",
                  "conv1 loses most, 71.9 % of its non-zero update on average and 100 % at step 30")
        self.assertFalse("no gradient" in page)

    def test_errors(self):
        run = make_run(self.folder / "run")
        (self.folder / "file").write_text("")
        cases = [([run], 2, "-o"),
                 (["-o", self.page], 2, "RUN_DIR"),
                 ([run, "-o", self.page, "--tensor", "z"], 2, "choose from"),
                 ([run, "-o", self.folder], 2, "is a folder"),
                 ([self.folder / "no", "-o", self.page], 3, "no such folder"),
                 ([self.folder, "-o", self.page], 3, "holds no run"),
                 ([run, "-o", self.folder / "file" / "x.html"], 6, "cannot write")]
        for arguments, status, text in cases:
            with self.subTest(text):
                result = run_tool(*arguments)
                self.assertEqual(result.returncode, status, result.stderr)
                self.assertIn(text, result.stderr)
                self.assertNotIn("Traceback", result.stderr)
        self.assertFalse(self.page.exists())
        self.assertEqual(list(self.folder.glob("*.part")), [])

    def test_a_device_or_fifo_is_written_into_and_stays(self):
        run = make_run(self.folder / "run")
        places = [pathlib.Path("/dev/null"), self.folder / "fifo", self.folder / "link"]
        os.mkfifo(places[1])
        places[2].symlink_to("/dev/null")
        kinds = [stat.S_IFMT(place.lstat().st_mode) for place in places]
        with open(self.page, "wb") as page, subprocess.Popen(["cat", places[1]], stdout=page):
            for place in places:
                self.assertEqual(run_tool(run, "-o", place).returncode, 0)
        self.says(self.page.read_text(), "</html>")
        self.assertEqual([stat.S_IFMT(place.lstat().st_mode) for place in places], kinds)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self.folder / "socket"))
        result = run_tool(run, "-o", self.folder / "socket")
        self.assertEqual(result.returncode, 6, result.stderr)
        self.assertIn("is no regular file", result.stderr)
        self.assertTrue((self.folder / "socket").is_socket())


if __name__ == "__main__":
    unittest.main()

"""tools/report.py on language models and attention: what such runs are judged by, and the gradients
that an attention has of its own."""
import html
import pathlib
import re
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from report_test import PACKAGES, STEPS, make_run, python, run_tool  # noqa: E402

SLOW_TO_DRAW = ["histograms.csv", "probes.csv", "what_if.csv"]
# What a tensor of the attention loses, in percent, in the order of a backward pass.
LOST = {"dv": 1, "ds": 5, "dq": 3, "dk": 50}
INSIDE = ["attn.dq", "attn.dk", "attn.dv", "attn.ds"]  # as pictures have them, from the input on


def add_attention(run):
    """Puts an attention between bn1 and fc: rows of its tensors, and what it decides."""
    file, rows = run / "underflow.csv", []
    for line in file.read_text().splitlines():
        rows.append(line)
        if ",fc,dx," in line:
            step = line.split(",")[0]
            rows += [f"{step},1,attn,{tensor},fp16,8,100,0,{lost},{lost},{lost},{lost},{lost},5,0,0,0,"
                     "1e-9,1e-3,0,1e-4,1,1,20,," for tensor, lost in LOST.items()]
    file.write_text("\n".join(rows) + "\n")
    rows = ["step,epoch,layer,policy,scale_in,unbound,bound,pow2,alpha,scale_out,limit"]
    for step in STEPS:
        rows.append(f"{step},1,fc,adaptive,1,2,2,2,2,2,target")
        rows += [f"{step},1,attn.{tensor},adaptive,2,{2 ** i},1,1,1,{2 ** i},one"
                 for i, tensor in enumerate(LOST)]
        rows.append(f"{step},1,bn1,adaptive,2,,,,,2,branch")
    (run / "scales.csv").write_text("\n".join(rows) + "\n")
    return run


def make_language_run(folder, name="a", tokens="bytes", losses=(2.0, 1.5, 1.75), seed=1,
                      drop=SLOW_TO_DRAW):
    """A run of a language model with an attention. The last evaluation has the largest accuracy, and the one before it the smallest loss."""
    run = add_attention(make_run(folder, name, drop=drop))
    source = "dataset: text, tokens: bytes" if tokens == "bytes" else "dataset: tokens"
    (run / "config.yaml").write_text(f"name: {name}\nseed: {seed}\ntask: language\n"
                                     f"data: {{{source}, context: 16}}\nmodel: {{zoo: gpt2}}\n")
    (run / "summary.json").write_text(
        f'{{"name": "{name}", "status": "finished", "train": {{"loss": 1.25, "accuracy": 0.5}}, '
        '"images_per_second": 100, "tokens_per_second": 1600}')
    (run / "evaluation.csv").write_text("step,epoch,split,images,loss,top1,top5\n" + "".join(
        f"{step},1,validation,25,{loss},{top1},0.75\n" + f"{step},1,validation_ema,25,9,0.01,0.02\n"
        for step, loss, top1 in zip((10, 20, 30), losses, (0.5, 0.25, 0.625))))
    (run / "timing.csv").write_text(
        "step,seconds,images_per_second,data,forward,backward,update,log,tokens\n"
        + "".join(f"{step},1,100,0.1,0.2,0.5,0.1,0.01,1600\n" for step in STEPS))
    return run


def table(text, column):
    """The first table with a column of this name, as rows of text."""
    found = next(part for part in re.findall(r"<table.*?</table>", text, re.S)
                 if f">{column}</th>" in part)
    return [[html.unescape(re.sub("<[^>]*>", "", cell)) for cell in
             re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S)]
            for row in re.findall(r"<tr.*?</tr>", found, re.S)]


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def page(self, *arguments):
        out = self.root / "page.html"
        done = run_tool(*arguments, "-o", out)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return html.unescape(re.sub(r"data:image/png;base64,[^\"]*", "",
                                    out.read_text(encoding="utf-8")))

    def says(self, page, *texts):
        for text in texts:
            self.assertTrue(text in page, text)  # assertIn would print the whole page


@unittest.skipUnless(PACKAGES, "matplotlib, pandas and yaml for the system's Python")
class LanguageTest(Case):
    def test_bytes(self):
        page = self.page(make_language_run(self.root / "a"))
        header, row = table(page, "train loss")
        cells = dict(zip(header, row))
        self.assertEqual({name: cells[name] for name in header[3:-1]}, {
            "train loss": "1.25", "train accuracy (%)": "50.00", "evaluated on": "validation",
            "loss": "1.75", "perplexity": "5.755", "bits per byte": "2.525",
            "next-token accuracy (%)": "62.50", "top-5 (%)": "75.00",
            "best loss": "1.5 (step 20)", "tokens/s": "1,600"})
        self.says(page, "a: loss 1.75, perplexity 5.755, 2.525 bits per byte, next-token accuracy "
                        "62.50 % (validation, step 30), best loss 1.5 at step 20, 1 step skipped")
        self.assertTrue("1600 tokens/s" in page)  # under the pointer
        for words in ("images/s", "top-1", "image "):
            self.assertFalse(words in page, words)

    def test_tokens_that_are_no_bytes(self):
        page = self.page(make_language_run(self.root / "a", tokens="words"))
        self.assertFalse("bits per byte" in page)
        self.says(page, "a: loss 1.75, perplexity 5.755, next-token accuracy 62.50 %")

    def test_axes(self):
        code = ("from ada_train.report import load, pictures_training, style\n"
                "runs = load.read_runs(sys.argv[1:])\n"
                "with style.look():\n"
                "    axes = pictures_training.training(runs, 30)[0].figure.axes\n"
                "    speed = pictures_training.timing(runs, 30)[0].figure.axes[1]\n"
                "    print(axes[0].get_ylabel(), '|', axes[1].get_ylabel(), '|',\n"
                "          *[right.get_ylabel() for right in axes[0].child_axes], '|',\n"
                "          *[right.yaxis.get_major_formatter()(2, None) for right in\n"
                "            axes[0].child_axes if right.get_ylabel() == 'perplexity'], '|',\n"
                "          speed.get_ylabel().replace(chr(10), ' '), speed.lines[0].get_ydata()[0])\n")
        text = make_language_run(self.root / "a")
        tokens = make_language_run(self.root / "b", tokens="words")
        images = make_run(self.root / "c", "c")
        self.assertEqual(
            python(code, text).strip(), "cross-entropy (nats a token) | next token right (% of tokens) "
            "| bits per byte | | training speed (tokens/s) 1600.0")
        self.assertEqual(
            python(code, text, tokens).strip(), "cross-entropy (nats a token) | next token right (% of "
            "tokens) | perplexity | 7.39 | training speed (tokens/s) 1600.0")
        self.assertEqual(
            python(code, text, images).strip(), "cross-entropy (nats) | right (% of what the loss is "
            "of) | | | training speed (images or sequences/s) 100.0")

    def test_a_logarithmic_axis_has_bits_beside_it(self):
        run = make_language_run(self.root / "a")
        file = run / "steps.csv"
        file.write_text(re.sub(r"(?m)^(2[0-9]|30),1,[^,]*,", r"\1,1,1e6,", file.read_text()))
        code = ("from ada_train.report import load, pictures_training, style\n"
                "import io\n"
                "with style.look():\n"
                "    figure = pictures_training.training(load.read_runs(sys.argv[1:]), 30)[0].figure\n"
                "figure.savefig(io.BytesIO())\n"
                "left, right = figure.axes[0], figure.axes[0].child_axes[0]\n"
                "print(left.get_yscale(), *[round(b / a, 3) for a, b in zip(left.get_ylim(),\n"
                "                                                        right.get_ylim())])\n")
        self.assertEqual(python(code, run).strip(), "log 1.443 1.443")

    def test_a_run_of_images_beside_one_of_language(self):
        page = self.page(make_language_run(self.root / "a"), make_run(self.root / "b", "b"))
        header, text, images = table(page, "train loss")
        text, images = dict(zip(header, text)), dict(zip(header, images))
        for name, of_text, of_images in (
                ("perplexity", "5.755", "–"), ("bits per byte", "2.525", "–"),
                ("accuracy (%)", "62.50", "81.25"), ("best accuracy (%)", "–", "81.25 (step 30)"),
                ("best loss", "1.5 (step 20)", "–"), ("images/s", "–", "–"),
                ("tokens/s", "1,600", "–"), ("loss", "1.75", "0.4")):
            self.assertEqual((text[name], images[name]), (of_text, of_images), name)
        self.says(page, "a: loss 1.75, perplexity 5.755", "b: top-1 81.25 % (test, step 30)")

    def test_seeds(self):
        runs = [make_language_run(self.root / f"{seed}", "same", seed=seed,
                                  losses=(2.0, 1.5, 1.75 + 0.5 * seed)) for seed in (0, 1)]
        page = self.page("--seeds", "mean", *runs)
        header, row = table(page, "seeds")
        cells = dict(zip(header, row))
        self.assertEqual([cells[name] for name in ("loss", "perplexity", "bits per byte",
                                                   "next-token accuracy (%)")],
                         ["2.0000 ± 0.3536", "7.62 ± 2.64", "2.8854 ± 0.5101", "62.50 ± 0.00"])
        self.says(page, "(2 seeds): loss 2.0000 ± 0.3536, perplexity 7.62 ± 2.64, 2.8854 ± 0.5101 "
                        "bits per byte, next-token accuracy 62.50 ± 0.00 %, 2 steps skipped in all")

    def test_without_a_configuration_the_rows_tell_the_task(self):
        run = make_language_run(self.root / "a")
        (run / "config.yaml").unlink()
        (run / "summary.json").unlink()
        (run / "evaluation.csv").write_text("step,epoch,split,images,loss,top1,top5\n"
                                            "30,1,validation,25,800,0.5,\n")
        self.says(self.page(run), "a: loss 800, perplexity inf, next-token accuracy 50.00 %")
        (run / "summary.json").write_text('{"evaluation": [1], "tokens_per_second": "x"}')
        (run / "evaluation.csv").write_text("step,epoch,split,images,loss,top1,top5\n"
                                            "30,1,validation,25,nan,,\n")
        self.says(self.page(run), "a: loss nan, perplexity nan, next-token accuracy nan %")


@unittest.skipUnless(PACKAGES, "matplotlib, pandas and yaml for the system's Python")
class AttentionTest(Case):
    def make_run(self, name="a"):
        return add_attention(make_run(self.root / name, name, drop=SLOW_TO_DRAW))

    def test_its_gradients_count_with_dx(self):
        page = self.page(self.make_run())
        self.says(page, "attn.dk loses most, 50 % of its non-zero values on average and 50 % at step 1",
                  "attn.dk</code> loses most: 50 % of its non-zero values on average",
                  "in one colour each: attn.dk, bn1, attn.ds, attn.dq, fc, attn.dv.",
                  "Rows LAYER.dq, LAYER.dk, LAYER.dv, LAYER.ds: gradients of an attention's queries, "
                  "keys, values, scores.")

    def test_rows_of_pictures(self):
        run = self.make_run()
        with open(run / "underflow.csv", "a", encoding="utf-8") as file:
            file.write("".join(f"{step},1,{layer},update,bf16,1,80,0,8,8,10,10,10,0,0,0,0,1e-9,1e-3,0,"
                               "1e-4,1,1,20,,\n" for step in STEPS for layer in ("conv1", "bn1", "fc")))
        code = ("from ada_train.report import layers, load, pictures_layers, style\n"
                "runs = load.read_runs(sys.argv[1:])\n"
                "order = layers.common_order(runs)\n"
                "print(*order)\n"
                "with style.look():\n"
                "    for draw, given in ((pictures_layers.underflow, ['dx']),\n"
                "                        (pictures_layers.scales, ['dx']),\n"
                "                        (pictures_layers.limits, []),\n"
                "                        (pictures_layers.scales, ['dk']),\n"
                "                        (pictures_layers.scales, ['p'])):\n"
                "        for picture in draw(runs, *given, order, 30)[:1]:\n"
                "            ax = picture.figure.axes[0]\n"
                "            print(*[label.get_text() for label in ax.get_yticklabels()])\n")
        order = ["conv1", "bn1", *INSIDE, "attn", "fc", "loss"]
        drawn = ["bn1", *INSIDE, "fc", "loss"]
        limits = ["bn1 (sum)", *INSIDE, "fc"]
        lines = python(code, run).splitlines()
        self.assertEqual(lines, [" ".join(row) for row in (order, drawn, drawn, limits, ["attn"])])
        # Where log.statistics has no gradients, scales.csv tells their scales.
        text = (run / "underflow.csv").read_text().splitlines()
        (run / "underflow.csv").write_text("\n".join(
            [text[0]] + [line for line in text if ",update," in line]) + "\n")
        lines = python(code, run).splitlines()
        self.assertEqual(lines[-3:], ["bn1 " + " ".join(INSIDE) + " fc", " ".join(limits), "attn"])

    def test_each_tensor(self):
        run = self.make_run()
        with open(run / "underflow.csv", "a", encoding="utf-8") as file:
            file.write("".join(f"{step},1,attn,p,fp16,1,80,0,8,8,10,10,10,0,0,0,0,1e-9,1e-3,0,1e-4,1,1,"
                               "20,,\n" for step in STEPS))
        for tensor, lost in {**LOST, "p": 10}.items():
            with self.subTest(tensor):
                self.says(self.page(run, "--tensor", tensor),
                          f"attn loses most, {lost} % of its non-zero {tensor} on average")
        self.says(self.page(run, "--tensor", "y"),
                  "attn.p loses most, 10 % of its non-zero values on average",
                  "Rows LAYER.p: an attention's probabilities.")

    def test_runs_without_attention(self):
        page = self.page(make_run(self.root / "b", "b", drop=SLOW_TO_DRAW))
        self.assertFalse("attention" in page)
        self.says(self.page(self.make_run(), self.root / "b", "--tensor", "ds"),
                  "a: attn loses most, 5 % of its non-zero ds on average", "b: no values")
        page = self.page(self.root / "b", "--tensor", "ds")
        self.says(page, "underflow.csv has no rows of ds: log.statistics chooses the tensors, and dx "
                        "brings ds of layers that have it.")

    def test_second_gradient_and_a_layer_named_alike(self):
        rows = ("from ada_train.report import layers\nimport pandas\n"
                "table = pandas.DataFrame({'layer': ['mul', 'mul', 'a.ds', 'a', 'a'],\n"
                "    'tensor': ['dx', 'dx2', 'dx', 'ds', 'y']}).astype('category')\n"
                "print(*layers.of_tensor(table, 'dx')['layer'], '|',\n"
                "      *layers.of_tensor(table, 'ds')['layer'], '|',\n"
                "      layers.beside_note(['mul.dx2', 'mul'], 'dx'))\n")
        self.assertEqual(python(rows).strip(), "mul mul.dx2 a.ds a.ds | a |  Rows LAYER.dx2: gradient "
                                               "of a layer's second input.")

    def test_runs_that_are_not_drawn_keep_the_rows(self):
        code = ("from ada_train.report import selection\n"
                "chosen = selection.read(sys.argv[1:], 'each', 'dx', 1)\n"
                "table = chosen.rest[0].underflow\n"
                "print(len(chosen.rest), *[sum(table['tensor'] == t) for t in ('dx', 'ds', 'dk')])\n")
        runs = [self.make_run(name) for name in ("a", "b")]
        self.assertEqual(python(code, *runs).split(), ["1", "12", "4", "4"])

    def test_a_tensor_that_is_none(self):
        done = run_tool(self.make_run(), "--tensor", "dz", "-o", self.root / "page.html")
        self.assertEqual(done.returncode, 2)
        self.says(done.stderr, "argument --tensor: 'dz' is no tensor of the logs; choose from\n"
                               "  y, p, w, dx, dx2, ds, dq, dk, dv, ")
        for text in (done.stderr, run_tool("--help", environment={"COLUMNS": "80"}).stdout):
            self.assertLessEqual(max(map(len, text.splitlines())), 80)


if __name__ == "__main__":
    unittest.main()

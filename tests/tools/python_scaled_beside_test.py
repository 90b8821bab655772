"""ada_train.torch.AdaLossScaled beside others: layer by layer what ada-train decides of the same
network, weights and batches; the recorded steps of an independent program; runs that the commands
read; networks of timm. Needs torch (ADA_BENCH_PYTHON)."""
import json
import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import torch_head as head  # noqa: E402
from ada_train import run_files  # noqa: E402

try:
    import torch
    from torch.nn import functional
    import scaled_modules
    import scaled_networks
    from ada_train.torch import AdaLossScaled
except ImportError:
    torch = None
BINARY = os.environ.get("ADA_BINARY")
START = 2.0 ** -9


OtherPythonTest = head.other_python(__file__, "BesideTest")


def rows(folder, file="scales"):
    return list(run_files.rows(pathlib.Path(folder) / f"{file}.csv"))


@head.needs_torch
class BesideTest(head.WithLibrary):
    @unittest.skipUnless(BINARY, "ADA_BINARY is not set")
    def test_the_decisions_of_the_program(self):
        bounds = {"scale_upper_bound": 128, "accum_upper_bound": 4096}
        cases = (("lenet", "fp16", {"init_scale": START}),
                 ("lenet", "fp8_e5m2", {"init_scale": "auto", "method": "exact_range"}),
                 ("lenet", "fp16", {"init_scale": START, "method": "abs_range", "layers": [
                     {"match": "fc*", "method": "element_wise_range", "power_of_two": False}]}),
                 ("lenet", "fp16", {"policy": "layerwise_dynamic", "init_scale": 2.0 ** 20}),
                 ("lenet", "fp16", {"init_scale": 2.0 ** 4, "reference": True}),
                 ("lenet", {"format": "fp16", "operands": "mxfp8_e4m3"}, {"init_scale": START}),
                 ("lenet", {"format": "bf16", "operands": "nvfp4"},
                  {"init_scale": START, "method": "exact_range"}),
                 ("resnet20", "fp16", {"init_scale": START, **bounds, "reference": True}),
                 ("resnet20", "fp16", {"init_scale": START, **bounds}),
                 ("resnet20", "fp16", {"init_scale": START, **bounds, "batch_norm": True}))
        for i, (name, form, keys) in enumerate(cases):
            with self.subTest(name=name, format=form, keys=keys):
                place = self.folder / str(i)
                place.mkdir()
                self.compare(place, name, form, {"policy": "adaptive", **keys})

    def compare(self, place, name, form, keys):
        net = scaled_networks.made(name)
        precision = form if isinstance(form, dict) else {"format": form}
        run = scaled_networks.ada_train(BINARY, place, name, net, json.dumps(precision),
                                        json.dumps(keys))
        model = AdaLossScaled(net, keys, format=form, folder=place / "torch", every=1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.005)
        for images, labels in scaled_networks.batches(run):
            loss = model.scale(functional.cross_entropy(model(images), labels))
            loss.backward()
            model.step(optimizer)
        model.close()
        chosen = ("layer", "policy", "scale_in", "pow2", "alpha", "scale_out", "limit")
        theirs, ours = (sorted([r[c] for c in chosen] for r in rows(folder))
                        for folder in (run, place / "torch"))
        if keys.get("layers"):  # alpha is no power of two: as near as its statistics
            theirs, ours = ([[r[0], r[-1]] for r in found] for found in (theirs, ours))
        self.assertEqual(theirs, ours)
        for a, b in zip(rows(run, "steps"), rows(place / "torch", "steps")):
            self.assertEqual(a["scale"], b["scale"])
            self.assertAlmostEqual(float(a["loss"]) / float(b["loss"]), 1, 3)
            self.assertAlmostEqual(float(a["grad_norm"]) / float(b["grad_norm"]), 1, 2)
        scales = [{(r["layer"], r["tensor"]): r["scale"] for r in rows(folder, "underflow")
                   if r["tensor"] in ("dx", "dw") and ".add" not in r["layer"]}
                  for folder in (run, place / "torch")]
        if not keys.get("layers"):
            for key in scales[1]:
                self.assertEqual(scales[0][key], scales[1][key], key)

    def test_recorded_steps(self):
        """Those of an independent program: tests/golden/steps says how far roundings carry."""
        golden = head.ROOT / "tests" / "golden" / "steps"
        cifar = pathlib.Path(os.environ.get("ADA_CIFAR10") or head.ROOT / "data" / "cifar-10")
        fashion = pathlib.Path("/usr/share/datasets/fashion-mnist")
        for name, make, there, read in (
                ("lenet", scaled_networks.GoldenLeNet, fashion, scaled_networks.fashion),
                ("resnet20", scaled_networks.ResNet20, cifar / "data_batch_1.bin",
                 scaled_networks.cifar)):
            if not there.exists():
                self.skipTest(f"{there} is missing (ADA_CIFAR10 may name CIFAR-10's folder)")
            for form in ("fp32", "fp16_adaptive"):
                with self.subTest(network=name, format=form):
                    net = scaled_networks.load(make(), golden / f"{name}_init.safetensors")
                    self.recorded(net, golden / f"{name}_{form}", read(there, 128))

    def recorded(self, net, place, images):
        case = json.loads((place / "case.json").read_text(encoding="utf-8"))
        scaling, keys = case["scaling"], {"policy": "none"}
        adaptive = scaling["policy"] == "adaptive"
        if adaptive:
            keys = {"init_scale": scaling["S0"], "underflow_target": scaling["n"],
                    "scale_upper_bound": scaling["SB"], "accum_upper_bound": scaling["AB"],
                    "u_min": scaling["u_min"]}
        model = AdaLossScaled(net, keys, format=case["format"] if adaptive else None)
        optimizer = torch.optim.SGD(net.parameters(), lr=case["optimizer"]["lr"],
                                    momentum=case["optimizer"]["momentum"],
                                    weight_decay=case["optimizer"]["wd"])
        for row in rows(place, "steps")[:2]:
            first = (int(row["step"]) - 1) * 64
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images[0][first:first + 64]),
                                            images[1][first:first + 64])
            model.scale(loss).backward()
            near = 2e-4 if adaptive else 1e-6 if row["step"] == "1" else 1e-5
            self.assertAlmostEqual(loss.item() / float(row["loss"]), 1, delta=near)
            decided = {d["layer"]: d for d in model.decisions}
            wanted = [r for r in rows(place) if r["step"] == row["step"]] if adaptive else []
            for r in wanted:
                d = decided[r["layer"]]
                self.assertEqual((d["limit"], d["alpha"], d["scale_out"]),
                                 (r["limit"], float(r["alpha"]), float(r["scale_out"])), r)
            self.assertEqual(bool(wanted), adaptive)
            model.step(optimizer)

    def test_logs_of_what_the_network_computes_in(self):
        torch.manual_seed(0)
        net = scaled_modules.convolutions()
        model = AdaLossScaled(net, {"init_scale": 2.0 ** -12, "accum_upper_bound": 2.0 ** 20},
                              folder=self.folder / "run", every=2,
                              record={"statistics": ["y", "w", "dx", "dw"]})
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss = functional.cross_entropy(model(torch.randn(2, 3, 8, 8)),
                                                torch.tensor([0, 1]))
            model.scale(loss).backward()
            model.step(optimizer, accuracy=0.5)
        decided = {r["layer"]: r for r in rows(self.folder / "run") if r["step"] == "2"}
        model.close()
        self.assertEqual(len(rows(self.folder / "run", "steps")), 3)
        counted = {(r["layer"], r["tensor"]): r for r in rows(self.folder / "run", "underflow")
                   if r["step"] == "2"}
        self.assertEqual(set(decided), {"3", "4", "8"})
        for layer, row in decided.items():
            dx = counted[layer, "dx"]
            self.assertEqual((dx["scale"], dx["format"]), (row["scale_out"], "fp16"))
            self.assertEqual(counted[layer, "dw"]["scale"], "1.0")
            self.assertEqual(counted[layer, "dw"]["format"], "fp32")

    @unittest.skipUnless(BINARY, "ADA_BINARY is not set")
    def test_the_commands_for_runs(self):
        for name, keys in (("a", {"init_scale": START}),
                           ("b", {"policy": "fixed", "scale": 8.0})):
            net = scaled_networks.made("lenet")
            model = AdaLossScaled(net, keys, format="fp8_e5m2", folder=self.folder / name, every=1)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
            for _ in range(3):
                model.scale(functional.cross_entropy(
                    model(torch.randn(4, 1, 28, 28)), torch.arange(4))).backward()
                model.step(optimizer)
            model.close()
        a, b = str(self.folder / "a"), str(self.folder / "b")
        for command, text in ((["recommend", a], "Recommended: "), (["watch", a, "--once"], "fc2"),
                              (["compare", a, b], "underflow of dx")):
            done = subprocess.run([BINARY, *command], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, (command, done.stderr))
            self.assertIn(text, done.stdout + done.stderr)

    def test_networks_of_timm(self):
        """Every convolution and linear layer has its row, or is named with a reason."""
        try:
            import timm
        except ImportError:
            self.skipTest("timm is missing")
        from ada_train.torch.layers import is_product
        for name, options in (("mobilenetv3_small_050", {}), ("convnext_atto", {}),
                              ("vit_tiny_patch16_224", {"img_size": 64})):
            with self.subTest(name):
                torch.manual_seed(0)
                net = timm.create_model(name, num_classes=4, **options)
                model = AdaLossScaled(net, {}, format="fp16")
                optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
                for _ in range(2):
                    optimizer.zero_grad()
                    loss = functional.cross_entropy(model(torch.randn(2, 3, 64, 64)),
                                                    torch.tensor([0, 1]))
                    model.scale(loss).backward()
                    found = {d["layer"] for d in model.decisions} | set(model.reasons)
                    model.step(optimizer)
                products = {path for path, module in net.named_modules() if is_product(module)}
                self.assertEqual(products - found, set())
                self.assertEqual(len(model.reasons), 1)  # the first: nobody wants its dx


if __name__ == "__main__":
    unittest.main()

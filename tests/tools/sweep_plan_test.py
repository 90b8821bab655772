"""tools/sweep/plan.py: values, combinations, names and what it refuses."""
import importlib.util
import pathlib
import unittest

PATH = pathlib.Path(__file__).resolve().parents[2] / "tools" / "sweep" / "plan.py"


def load_plan():
    spec = importlib.util.spec_from_file_location("plan", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PLAN = load_plan()


class PlanTest(unittest.TestCase):
    def test_commas_part_values_but_not_inside(self):
        cases = [
            ("1,2, 3", ["1", "2", "3"]),
            ("one", ["one"]),
            ("{policy: fixed, scale: 8},{policy: none}",
             ["{policy: fixed, scale: 8}", "{policy: none}"]),
            ("[1, [2, 3]],[]", ["[1, [2, 3]]", "[]"]),
            ("'a,b',\"c,d\"", ["'a,b'", '"c,d"']),
            ("'a]',b", ["'a]'", "b"]),
            ("it's,b", ["it's", "b"]),
            ("a,,b", ["a", "", "b"]),
        ]
        for text, values in cases:
            with self.subTest(text):
                self.assertEqual(PLAN.split_values(text), values)
        for text in ("{a: 1", "[1, 2", "'a", "a}", "{a]"):
            with self.subTest(text), self.assertRaises(PLAN.PlanError):
                PLAN.split_values(text)

    def test_product_in_order(self):
        plan = PLAN.make_plan(["a.yaml"], [
            ("vary", ["optimizer.lr=0.1,0.2"]), ("set", ["x=1", "y=2"]),
            ("vary", ["seed=1", "seed=2"])])
        self.assertEqual(plan["keys"], ["optimizer.lr", "seed"])
        self.assertEqual([run["name"] for run in plan["runs"]],
                         ["lr=0.1__seed=1", "lr=0.1__seed=2", "lr=0.2__seed=1", "lr=0.2__seed=2"])
        self.assertEqual(plan["runs"][1]["options"],
                         ["--config", "a.yaml", "--set", "optimizer.lr=0.1", "--set", "x=1",
                          "--set", "y=2", "--set", "seed=2"])
        self.assertEqual(plan["runs"][1]["values"], {"optimizer.lr": "0.1", "seed": "2"})

    def test_keys_that_change_together(self):
        plan = PLAN.make_plan(["a.yaml"], [
            ("vary", ["format=fp16,bf16,fp16", "with", "scaling.policy=dynamic", "scaling.policy=none,fixed"]),
            ("vary", ["seed=1,2"])])
        self.assertEqual(plan["keys"], ["format", "scaling.policy", "seed"])
        self.assertEqual([run["name"] for run in plan["runs"]],
                         [f"format={form}__policy={policy}__seed={seed}" for form, policy in
                          (("fp16", "dynamic"), ("bf16", "none"), ("fp16", "fixed"))
                          for seed in (1, 2)])
        self.assertEqual(plan["runs"][2]["values"],
                         {"format": "bf16", "scaling.policy": "none", "seed": "1"})
        for words in (["a=1,2", "with", "b=1"], ["a=1", "with"], ["with", "a=1"],
                      ["a=1,1", "with", "b=2,2"], ["a=1", "with", "a=2"]):
            with self.subTest(words), self.assertRaises(PLAN.PlanError):
                PLAN.make_plan(["a.yaml"], [("vary", words)])

    def test_configurations_are_a_dimension(self):
        plan = PLAN.make_plan(["c/none.yaml", "c/fixed.yaml"], [("vary", ["seed=1,2"])])
        self.assertEqual([run["name"] for run in plan["runs"]],
                         ["none__seed=1", "none__seed=2", "fixed__seed=1", "fixed__seed=2"])
        self.assertEqual(plan["runs"][2]["values"], {"config": "fixed", "seed": "1"})
        alike = PLAN.make_plan(["c/a.yaml", "d/a.yaml"], [])
        self.assertEqual([run["name"] for run in alike["runs"]], ["c-a.yaml", "d-a.yaml"])
        self.assertEqual([run["name"] for run in PLAN.make_plan(["c/a.yaml"], [])["runs"]], ["a"])

    def names(self, *words):
        return [run["name"] for run in PLAN.make_plan(["a.yaml"], [("vary", list(words))])["runs"]]

    def test_names(self):
        self.assertEqual(self.names("scaling={policy: fixed, scale: 1e-3}"),
                         ["scaling=policy-fixed-scale-1e-3"])
        self.assertEqual(self.names("data.path=../a b/c"), ["path=..-a-b-c"])
        self.assertEqual(self.names("x=-1,1"), ["x=-1", "x=1"])
        both = PLAN.make_plan(["a"], [("vary", ["a.scale=1"]), ("vary", ["b.scale=2"])])
        self.assertEqual(both["runs"][0]["name"], "a.scale=1__b.scale=2")
        first, second, third = self.names("x=[1],{1},2")  # both read 1
        self.assertRegex(first, r"^x=1-[0-9a-f]{8}$")
        self.assertRegex(second, r"^x=1-[0-9a-f]{8}$")
        self.assertNotEqual(first, second)
        self.assertEqual(third, "x=2")
        long = self.names("x=" + "a" * 300 + ",b")
        self.assertEqual(len(long[0]), 60)
        self.assertEqual(long, self.names("x=" + "a" * 300 + ",b"))
        self.assertNotEqual(long[0], self.names("x=" + "a" * 301)[0])
        many = [("vary", [f"key{i}={'v' * 40}"]) for i in range(9)]
        self.assertEqual(len(PLAN.make_plan(["a"], many)["runs"][0]["name"]), 200)

    def test_what_makes_no_sweep(self):
        cases = [
            ([], [], "--config FILE is missing"),
            (["a", "a"], [], "twice"),
            (["a"], [("vary", ["seed"])], "expected KEY=VALUE"),
            (["a"], [("vary", ["seed=1,,2"])], "empty value"),
            (["a"], [("vary", ["seed=1,2,1"])], "'1' is given twice"),
            (["a"], [("vary", ["seed=1", "lr=2"])], "a --vary of its own"),
            (["a"], [("vary", ["seed=1"]), ("vary", ["seed=2"])], "stands twice"),
            (["a"], [("vary", ["seed=1"]), ("set", ["seed=2"])], "both varied and set"),
            (["a"], [("set", ["output=x"])], "the sweep itself sets `output`"),
        ]
        for files, steps, message in cases:
            with self.subTest(message), self.assertRaisesRegex(PLAN.PlanError, message):
                PLAN.make_plan(files, steps)


if __name__ == "__main__":
    unittest.main()

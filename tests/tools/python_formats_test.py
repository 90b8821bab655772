"""ada_train.formats: the largest and smallest numbers of each format, by its codes and as the program
says them."""
import os
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools/python"))
from ada_train import formats  # noqa: E402


def decoded(form, code):
    """The number of a code of `form`'s exponent and mantissa bits, by the definition."""
    field, rest = code >> form.mantissa, code & ((1 << form.mantissa) - 1)
    if field == 0 and form.signed:
        return rest * 2.0 ** (1 - form.bias - form.mantissa)
    return (1 + rest / 2 ** form.mantissa) * 2.0 ** (field - form.bias)


class FormatsTest(unittest.TestCase):
    def test_fp16(self):
        fp16 = formats.find("fp16")
        self.assertEqual(fp16.underflow, 2.0 ** -25)
        self.assertEqual(fp16.smallest_normal, 2.0 ** -14)
        self.assertEqual((fp16.largest, fp16.overflow), (65504, 65520))

    def test_others(self):
        self.assertEqual(formats.find("fp8_e4m3").largest, 448)
        self.assertEqual(formats.find("fp8_e4m3").overflow, 464)
        self.assertEqual(formats.find("fp8_e4m3").underflow, 2.0 ** -10)
        self.assertEqual(formats.find("fp8_e5m2").overflow, 61440)
        self.assertEqual(formats.find("fp4_e2m1").overflow, 7)
        self.assertEqual(formats.find("fp32").overflow, float("inf"))

    def test_every_named_format_by_its_codes(self):
        for name, form in formats.NAMED.items():
            if form.exponent + form.mantissa > 15:
                continue
            values = [decoded(form, c) for c in range(2 ** (form.exponent + form.mantissa))]
            if form.has_inf:
                values = values[:-(2 ** form.mantissa)]
            elif form.has_nan and form.negative_zero:
                values = values[:-1]
            with self.subTest(name):
                self.assertEqual(values, sorted(values))
                self.assertEqual(form.largest, values[-1])
                self.assertEqual(form.smallest_subnormal, min(v for v in values if v > 0))

    def test_maps(self):
        form = formats.find("{exponent: 4, mantissa: 3, bias: 9, has_inf: false, saturate: true}")
        self.assertEqual((form.exponent, form.mantissa, form.bias), (4, 3, 9))
        self.assertEqual((form.has_inf, form.has_nan, form.saturate), (False, True, True))
        self.assertEqual(formats.find("{exponent: 6, mantissa: 9}"), formats.find("cb16"))
        for text in ["", "fp17", "{exponent: 4}", "{exponent: x, mantissa: 3}", "{nonsense: 1}"]:
            self.assertIsNone(formats.find(text), text)

    @unittest.skipUnless(os.environ.get("ADA_BINARY"), "ADA_BINARY is not set")
    def test_same_as_the_program(self):
        listed = subprocess.run([os.environ["ADA_BINARY"], "formats"], capture_output=True,
                                text=True, check=True).stdout
        pattern = (r"^(\w+): .* largest (\S+), smallest normal (\S+), smallest subnormal "
                   r"([^;\s]+);")
        found = re.findall(pattern, listed, re.MULTILINE)
        self.assertEqual([f[0] for f in found], list(formats.NAMED))
        for name, largest, normal, subnormal in found:
            form = formats.find(name)
            for ours, theirs in ((form.largest, largest), (form.smallest_normal, normal),
                                 (form.smallest_subnormal, subnormal)):
                self.assertAlmostEqual(ours / float(theirs), 1, places=8, msg=name)


if __name__ == "__main__":
    unittest.main()

"""tools/check_arrows.py on small trees: which includes it lets pass and which it names."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check_arrows.py"

# (file, its include line, a part of the message; None: allowed)
CASES = [
    ("number/a.h", '#include <vector>', None),
    ("number/a.h", '#include "number/b.h"', None),
    ("number/a.h", '#include "config/config.h"', "number must not include"),
    ("number/a.h", '#include "io/file.h"', "number must not include"),
    ("io/a.cpp", '#include "number/number_format.h"', None),
    ("step/a.cpp", '#include "record/step_log.h"', "step must not include"),
    ("record/a.cpp", '#include "step/trainer.h"', None),
    ("record/a.cpp", '#include "run/session.h"', "record must not include"),
    ("number/a.h", '#include <yaml-cpp/yaml.h>', "is for config only"),
    ("config/a.cpp", '#include <yaml-cpp/yaml.h>', None),
    ("config/a.cpp", '#include "error.h"', None),
    ("config/a.cpp", '#include "graph/graph.h"', "config must not include"),
    ("scaling/rules/a.cpp", '#include "backend/backend.h"', "scaling/rules must not include"),
    ("scaling/rules/a.cpp", '#include "scaling/policies/policy.h"', "scaling/rules must not include"),
    ("scaling/policies/a.cpp", '#include "scaling/rules/rules.h"', None),
    ("scaling/policies/a.cpp", '#include "config/config.h"', "scaling/policies must not include"),
    ("config/a.cpp", '#include "layers/layer_kind.h"', None),
    ("layers/a.cpp", '#include "config/config.h"', "layers must not include"),
    ("judge/a.cpp", '#include "run/run.h"', "judge must not include"),
    ("telemetry/a.cpp", '#include "scaling/rules/rules.h"', None),
    ("telemetry/a.cpp", '#include <spdlog/spdlog.h>', None),
    ("telemetry/a.cpp", '#include "run/run.h"', "telemetry must not include"),
    ("run/a.cpp", '#include <spdlog/spdlog.h>', "is for telemetry only"),
    ("backend/backend.h", '#include "scaling/rules/rules.h"', None),
    ("backend/backend.h", '#include "scaling/policies/policy.h"', "backend must not include"),
    ("backend/backend.h", '#include "backend/cpu/cpu_backend.h"', "backend must not include"),
    ("backend/cpu/a.cpp", '#include "backend/backend.h"', None),
    ("backend/cpu/a.cpp", '#include "scaling/rules/rules_inline.h"', None),
    ("backend/cpu/a.cpp", '#include "scaling/policies/policy.h"', "backend/cpu must not include"),
    ("backend/cpu/a.cpp", '#include <dnnl.hpp>', None),
    ("backend/cpu/matmul/plan/a.cpp", '#include <dnnl.hpp>', None),
    ("backend/cpu/matmul/kernels/amx/a.cpp", '#include <immintrin.h>', None),
    ("backend/cpu/matmul/kernels/a.h", '#include "backend/cpu/matmul/plan/b.h"',
     "backend/cpu/matmul/kernels must not include"),
    ("backend/cpu/matmul/plan/a.h", '#include "backend/cpu/ops/b.h"',
     "backend/cpu/matmul must not include"),
    ("backend/cpu/matmul/plan/a.h", '#include "backend/cpu/matmul/kernels/b.h"', None),
    ("backend/cpu/ops/a.h", '#include "backend/cpu/matmul/plan/b.h"', None),
    ("backend/cpu/a.cpp", '#include <oneapi/dnnl/dnnl.hpp>', None),
    ("backend/cpu/a.cpp", '  #  include <immintrin.h>', None),
    ("backend/cuda/a.cpp", '#include <cuda_runtime_api.h>', None),
    ("backend/cuda/a.cpp", '#include <cudnn_frontend.h>', None),
    ("backend/cuda/kernels/a.h", '#include "backend/cuda/launch.h"', None),
    ("backend/cuda/a.cpp", '#include "backend/cpu/rounding/blocks.h"', "backend/cuda must not include"),
    ("backend/compare/a.cpp", '#include "backend/backend.h"', None),
    ("backend/compare/a.cpp", '#include "backend/cuda/cuda_backend.h"',
     "backend/compare must not include"),
    ("backend/cpu/a.cpp", '#include <cublas_v2.h>', "is for backend/cuda only"),
    ("run/a.cpp", '#include <cudnn.h>', "is for backend/cuda only"),
    ("run/a.cpp", '#include "backend/cuda/cuda_backend.h"', None),
    ("number/a.cpp", '#include <immintrin.h>', "is for backend/cpu and data/images/kernels only"),
    ("graph/a.cpp", '#include <dnnl.hpp>', "is for backend/cpu only"),
    ("graph/a.cpp", '#include "backend/backend.h"', None),
    ("graph/a.cpp", '#include "backend/cpu/cpu_backend.h"', "graph must not include"),
    ("graph/a.cpp", '#include "config/model_config.h"', None),
    ("graph/a.cpp", '#include "config/load.h"', "graph must not include"),
    ("optim/a.cpp", '#include "backend/backend.h"', None),
    ("optim/a.cpp", '#include "graph/graph.h"', "optim must not include"),
    ("run/run.cpp", '#include "backend/cpu/cpu_backend.h"', None),
    ("run/run.cpp", '#include <CLI/CLI.hpp>', "is for cli only"),
    ("cli/a.cpp", '#include <CLI/CLI.hpp>', None),
    ("cli/a.cpp", '#include "study/commands.h"', None),
    ("study/a.cpp", '#include "judge/scenario.h"', None),
    ("study/a.cpp", '#include "graph/graph.h"', "study must not include"),
    ("run/a.cpp", '#include "study/inspect/inspected.h"', "run must not include"),
    ("main.cpp", '#include "cli/command_line.h"', None),
    ("main.cpp", '#include "run/run.h"', "main.cpp must not include"),
    ("data/a.cpp", '#include <zlib.h>', None),
    ("number/a.cpp", '#include <zlib.h>', "is for data only"),
    ("run/a.cpp", '#include "run.h"', 'write "folder/file.h"'),
    ("run/a.cpp", '#include "../io/file.h"', 'write "folder/file.h"'),
    ("run/a.cpp", '#include <io/file.h>', "is ours"),
    ("run/a.cpp", '// #include "nowhere.h"', None),
    ("attic/a.cpp", '#include <vector>', "lies in no folder"),
]


def run(source):
    return subprocess.run([sys.executable, str(TOOL), str(source)], capture_output=True, text=True,
                          check=False)


class CheckArrowsTest(unittest.TestCase):
    def test_cases(self):
        for name, line, message in CASES:
            with self.subTest(file=name, line=line), tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("#pragma once\n" + line + "\n", encoding="utf-8")
                result = run(folder)
                if message is None:
                    self.assertEqual((result.returncode, result.stdout), (0, ""))
                    continue
                self.assertEqual(result.returncode, 1)
                place = f"{path}:{1 if 'no folder' in message else 2}: "
                self.assertTrue(result.stdout.startswith(place), result.stdout)
                self.assertIn(message, result.stdout)

    def test_diagram_has_every_folder(self):
        printed = subprocess.run([sys.executable, str(TOOL), "--diagram"], capture_output=True,
                                 text=True, check=True).stdout
        self.assertRegex(printed, r"(?m)^main\.cpp +-> cli, parallel$")
        self.assertRegex(printed, r"(?m)^error\.h +-> nothing$")

    def test_missing_folder(self):
        self.assertEqual(run("/nonexistent").returncode, 2)


if __name__ == "__main__":
    unittest.main()

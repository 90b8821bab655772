"""`ada-train watch` on a terminal (a pty with a small emulator behind it) and without one: runs
that go on, end, die, are resumed, and one that really trains. ADA_BINARY names the program."""
import fcntl
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

BINARY = os.environ.get("ADA_BINARY", "build/ada-train")
PATIENCE = 60  # seconds until something that must happen counts as missing
HEADERS = {
    "steps.csv": "step,epoch,loss,accuracy,lr,scale,overflow,skipped,grad_norm\n",
    "scales.csv": "step,epoch,layer,policy,scale_in,unbound,bound,pow2,alpha,scale_out,limit\n",
    "underflow.csv": "step,epoch,layer,tensor,scale,underflow_pct_nonzero\n",
    "events.csv": "step,epoch,event,layer,tensor,value,message\n",
    "evaluation.csv": "step,epoch,split,images,loss,top1,top5\n",
}
CONFIG = """
name: really
data: {dataset: synthetic, batch_size: 16, limit: {train: 64, test: 16}}
model: {zoo: mlp, hidden: [8], classes: 10}
precision: {format: fp16}
optimizer: {lr: 0.1}
train: {epochs: 1000000}
log: {every: 1}
checkpoint: {every_epochs: 0}
evaluate: {every_epochs: 1000000}
"""


class FakeRun:
    """A run's folder that is written by hand and held like a run holds it."""

    def __init__(self, layers=("loss", "fc", "conv1")):
        self.layers = layers
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="ada-watch-"))
        self.lock = open(self.path / ".lock", "w", encoding="ascii")
        fcntl.lockf(self.lock, fcntl.LOCK_EX)
        for name, header in HEADERS.items():
            (self.path / name).write_text(header, encoding="utf-8")

    def append(self, name, text):
        with open(self.path / name, "a", encoding="utf-8") as file:
            file.write(text)

    def step(self, step, pct, logged=True):
        if logged:
            self.append("underflow.csv", "".join(
                f"{step},1,{layer},dx,1024,{pct}\n" for layer in self.layers))
            self.append("scales.csv", f"{step},1,fc,adaptive,1,,,4,4,4,cap\n")
        self.append("steps.csv", f"{step},1,{1 / step:.9g},0.5,0.1,1024,0,0,1\n")

    def finish(self, status="finished"):
        (self.path / "summary.json").write_text(f'{{"status": "{status}"}}', encoding="utf-8")
        self.lock.close()

    def die(self):
        self.lock.close()

    def remove(self):
        self.lock.close()
        shutil.rmtree(self.path)


class Terminal:
    """The program on a pty, and what a terminal would show of it."""

    def __init__(self, arguments, columns=80, lines=24):
        self.columns, self.lines = columns, lines
        self.raw, self.rest = "", ""
        self.alternate, self.cursor, self.overrun = False, True, False
        self.screens = {False: [""] * lines, True: [""] * lines}
        self.row = self.column = 0
        pid, self.master = pty.fork()
        if pid == 0:
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
            os.environ.update(TERM="xterm", LC_ALL="C.UTF-8")
            os.execv(BINARY, [BINARY, "watch", *arguments])
        self.pid = pid

    def resize(self, columns, lines):
        self.columns, self.lines = columns, lines
        for shown in self.screens.values():
            shown[:] = (shown + [""] * lines)[:lines]
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def text(self):
        return "\n".join(line.rstrip() for line in self.screens[self.alternate])

    def feed(self, data):
        self.raw += data
        text = self.rest + data
        while text:
            escape = re.match(r"\x1b\[(\??[0-9;]*)([A-Za-z])", text)
            if text[0] == "\x1b" and not escape:
                break  # the rest of it is yet to come
            if escape:
                self.control(escape.group(1), escape.group(2))
                text = text[escape.end():]
            else:
                self.put(text[0])
                text = text[1:]
        self.rest = text

    def control(self, number, letter):
        shown = self.screens[self.alternate]
        if letter == "H":
            self.row = self.column = 0
        elif letter == "K":
            shown[self.row] = shown[self.row][:self.column]
        elif letter == "J":
            shown[self.row] = "" if number == "2" else shown[self.row][:self.column]
            first = 0 if number == "2" else self.row + 1
            shown[first:] = [""] * (self.lines - first)
        elif number == "?1049":
            self.alternate = letter == "h"
            self.row = self.column = 0
        elif number == "?25":
            self.cursor = letter == "h"

    def put(self, character):
        shown = self.screens[self.alternate]
        if character == "\r":
            self.column = 0
        elif character == "\n":
            if self.row + 1 < self.lines:
                self.row += 1
            else:
                self.overrun = self.overrun or self.alternate  # the screen would scroll
                shown[:] = shown[1:] + [""]
        else:
            if self.column >= self.columns:
                self.overrun = True  # the line would wrap
            line = shown[self.row].ljust(self.column)
            shown[self.row] = line[:self.column] + character + line[self.column + 1:]
            self.column += 1

    def wait_for(self, condition):
        """Reads until `condition` holds; True when it does, False at the end of the output."""
        end = time.monotonic() + PATIENCE
        pending = b""
        while not condition(self):
            if time.monotonic() > end or not select.select([self.master], [], [], PATIENCE)[0]:
                raise AssertionError("nothing came; the screen:\n" + self.text())
            try:
                data = os.read(self.master, 65536)
            except OSError:  # the program ended
                data = b""
            if not data:
                return condition(self)
            pending += data
            whole = pending.decode("utf-8", errors="ignore")
            if whole.encode() == pending:
                self.feed(whole)
                pending = b""
        return True

    def sees(self, text):
        return self.wait_for(lambda t: text in t.text())

    def finish(self):
        """Reads to the end; the exit code."""
        self.wait_for(lambda t: False)
        _, status = os.waitpid(self.pid, 0)
        os.close(self.master)
        return os.waitstatus_to_exitcode(status)


@unittest.skipUnless(os.access(BINARY, os.X_OK), f"{BINARY} is not built")
class WatchTest(unittest.TestCase):
    def fake(self, **arguments):
        run = FakeRun(**arguments)
        self.addCleanup(run.remove)
        return run

    def watch(self, run, *arguments, **size):
        return Terminal([str(run.path), "--interval", "0.1", *arguments], **size)

    def test_a_run_on_a_terminal_from_its_first_step_to_its_end(self):
        run = self.fake()
        terminal = self.watch(run)
        self.assertTrue(terminal.sees("no step has been written yet"))
        self.assertTrue(terminal.alternate)
        self.assertFalse(terminal.cursor)
        run.step(1, 0.5)
        self.assertTrue(terminal.sees("step 1 "))
        self.assertRegex(terminal.text(), r"\nloss +1024 +0\.500  - +▄\n")
        self.assertRegex(terminal.text(), r"\nfc +1024 +0\.500  cap +▄\n")
        run.step(2, 0, logged=False)
        run.step(3, 50)
        self.assertTrue(terminal.sees("step 3 "))
        self.assertRegex(terminal.text(), r"\nconv1 +1024 +50\.000  - +▄█\n")
        self.assertNotIn("step has been written", terminal.text())
        self.assertIn("\x1b[?25l", terminal.raw)
        run.finish()
        self.assertEqual(terminal.finish(), 0)
        self.assertFalse(terminal.overrun)
        self.assertFalse(terminal.alternate)
        self.assertTrue(terminal.cursor)
        self.assertIn("finished", terminal.text())  # the last table stays
        self.assertRegex(terminal.text(), r"\nconv1 +1024 +50\.000")

    def test_nothing_is_drawn_while_nothing_happens(self):
        run = self.fake()
        run.step(1, 0.5)
        terminal = self.watch(run)
        terminal.sees("conv1")
        drawn = terminal.raw.count("\x1b[H")
        run.step(2, 0.5)
        terminal.sees("step 2 ")
        self.assertEqual(terminal.raw.count("\x1b[H"), drawn + 1)
        os.kill(terminal.pid, signal.SIGTERM)
        self.assertEqual(terminal.finish(), 143)

    def test_sigint_gives_the_terminal_back(self):
        run = self.fake()
        run.step(1, 0.5)
        terminal = self.watch(run)
        terminal.sees("conv1")
        os.kill(terminal.pid, signal.SIGINT)
        self.assertEqual(terminal.finish(), 130)
        self.assertFalse(terminal.alternate)
        self.assertTrue(terminal.cursor)

    def test_q_quits_and_gives_the_keys_back(self):
        for key in (b"q", b"Q"):
            with self.subTest(key=key):
                run = self.fake()
                run.step(1, 0.5)
                terminal = self.watch(run)
                before = termios.tcgetattr(terminal.master)[3]
                terminal.sees("conv1")
                raw = termios.ICANON | termios.ECHO
                self.assertEqual(before & raw, raw)
                self.assertEqual(termios.tcgetattr(terminal.master)[3] & raw, 0)
                os.write(terminal.master, b"x\n ")  # other keys do nothing, and are not shown
                run.step(2, 0.5)
                self.assertTrue(terminal.sees("step 2 "))
                self.assertNotIn("x\r\n", terminal.raw)
                os.write(terminal.master, key)
                terminal.wait_for(lambda t: not t.alternate)
                terminal.wait_for(lambda t: t.text().count("conv1") > 0)
                _, status = os.waitpid(terminal.pid, 0)
                self.assertEqual(os.waitstatus_to_exitcode(status), 0)
                self.assertEqual(termios.tcgetattr(terminal.master)[3], before)
                self.assertTrue(terminal.cursor)
                self.assertIn("running", terminal.text())  # the last table stays
                os.close(terminal.master)

    def test_without_keys_of_its_own_it_goes_on(self):
        run = self.fake()
        run.step(1, 0.5)
        with self.plainly(run, stdin="q\n") as program:
            program.stdout.readline()
            run.step(2, 0.5)
            run.finish()
            text = program.stdout.read()
        self.assertEqual(program.returncode, 0)
        self.assertIn("finished", text)

    def test_a_stopped_program_gives_the_terminal_back_until_it_goes_on(self):
        run = self.fake()
        run.step(1, 0.5)
        terminal = self.watch(run)
        terminal.sees("conv1")
        os.kill(terminal.pid, signal.SIGTSTP)
        os.waitpid(terminal.pid, os.WUNTRACED)
        terminal.wait_for(lambda t: not t.alternate)
        self.assertTrue(terminal.cursor)
        os.kill(terminal.pid, signal.SIGCONT)
        self.assertTrue(terminal.sees("conv1"))
        self.assertTrue(terminal.alternate)
        self.assertFalse(terminal.cursor)
        run.finish()
        self.assertEqual(terminal.finish(), 0)

    def test_more_layers_than_lines_and_a_terminal_that_changes(self):
        run = self.fake(layers=[f"layer{i}" for i in range(50)])
        run.step(1, 0.5)
        terminal = self.watch(run, columns=60, lines=12)
        self.assertTrue(terminal.sees("and 45 more layers"))
        self.assertFalse(terminal.overrun)
        terminal.resize(100, 60)
        self.assertTrue(terminal.sees("layer49"))
        terminal.resize(40, 8)
        self.assertTrue(terminal.sees("and 49 more layers"))
        run.finish("interrupted")
        self.assertEqual(terminal.finish(), 0)

    def test_a_run_that_died(self):
        run = self.fake()
        run.step(1, 0.5)
        terminal = self.watch(run)
        terminal.sees("conv1")
        run.die()
        self.assertEqual(terminal.finish(), 0)
        self.assertIn("ended without a summary", terminal.text())

    def test_a_resume_from_an_earlier_step(self):
        run = self.fake()
        run.step(1, 0.5)
        kept = {name: (run.path / name).read_text(encoding="utf-8") for name in HEADERS}
        run.step(2, 50)
        terminal = self.watch(run)
        self.assertTrue(terminal.sees("step 2 "))
        for name, text in kept.items():
            (run.path / name).write_text(text, encoding="utf-8")
        self.assertTrue(terminal.sees("step 1 "))
        self.assertRegex(terminal.text(), r"\nfc +1024 +0\.500  cap +▄\n")
        run.finish()
        self.assertEqual(terminal.finish(), 0)

    def plainly(self, run, *arguments, stdin="", **environment):
        program = subprocess.Popen([BINARY, "watch", str(run.path), "--interval", "0.1", *arguments],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   encoding="utf-8",
                                   env={**os.environ, "LC_ALL": "C", **environment})
        program.stdin.write(stdin)
        program.stdin.close()
        return program

    def test_plain_lines_without_a_terminal(self):
        run = self.fake()
        run.step(1, 0.5)
        with self.plainly(run) as program:
            lines = [program.stdout.readline() for _ in range(7)]
            run.step(2, 5)
            run.step(3, 0.5)
            run.finish()
            lines += program.stdout.readlines()
        text = "".join(lines)
        self.assertEqual(program.returncode, 0)
        self.assertNotIn("\x1b", text)
        self.assertTrue(text.isascii())
        self.assertEqual(re.findall(r"^step (\d+) ", text, re.M), ["1", "2", "3", "3"])
        self.assertRegex(text, r"fc +1024 +0\.500  cap +-\+-\n")
        self.assertIn("finished", text.split("\n\n")[-1])

    def test_one_look(self):
        run = self.fake()
        run.step(1, 0.5)
        with self.plainly(run, "--once") as program:
            text = program.stdout.read()
        self.assertEqual(program.returncode, 0)
        self.assertIn("running", text)
        self.assertRegex(text, r"conv1 +1024 +0\.500  - +-\n")

    def test_a_folder_that_is_no_run(self):
        with tempfile.TemporaryDirectory() as folder:
            for path in (folder, folder + "/nothing"):
                result = subprocess.run([BINARY, "watch", path], capture_output=True, text=True,
                                        check=False)
                self.assertEqual(result.returncode, 3)
                self.assertIn("holds no run", result.stderr)

    def test_a_run_that_really_trains(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="ada-watch-"))
        self.addCleanup(shutil.rmtree, folder)
        (folder / "config.yaml").write_text(CONFIG, encoding="utf-8")
        out = folder / "run"
        with subprocess.Popen([BINARY, "--config", str(folder / "config.yaml"), "--output",
                               str(out), "--quiet"], stderr=subprocess.PIPE) as training:
            try:
                end = time.monotonic() + PATIENCE
                while not (out / "steps.csv").exists() or (out / "steps.csv").stat().st_size < 200:
                    self.assertIsNone(training.poll(), "training ended early")
                    self.assertLess(time.monotonic(), end)
                    time.sleep(0.05)
                terminal = Terminal([str(out), "--interval", "0.1"])
                self.assertTrue(terminal.sees("fc2"))
                self.assertIn("really  running", terminal.text())
                first = re.search(r"step (\d+)", terminal.text()).group(1)
                self.assertTrue(terminal.wait_for(
                    lambda t: f"step {first} " not in t.text() and "step " in t.text()))
                training.send_signal(signal.SIGINT)
                self.assertEqual(terminal.finish(), 0)
                self.assertIn("really  interrupted", terminal.text())
                self.assertFalse(terminal.overrun)
            finally:
                training.kill()


if __name__ == "__main__":
    sys.exit(unittest.main())

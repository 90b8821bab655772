"""Programs that write to a terminal, until they end."""
import os
import pty
import subprocess
import threading

END = b"\0"


def run_on_terminal(command, **options):
    """The exit status and all that the program writes, stderr too. This side holds the terminal open
    and writes a last byte to it: were the program the last to close it, the system might say so
    before all that was written has been read. options: of subprocess.Popen."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, **options) as program:
        def wait():
            program.wait()
            os.write(theirs, END)
        waiting = threading.Thread(target=wait)
        waiting.start()
        text = b""
        while not text.endswith(END):
            text += os.read(ours, 65536)
        waiting.join()
    os.close(theirs)
    os.close(ours)
    return program.returncode, text[:-1].decode().replace("\r\n", "\n")

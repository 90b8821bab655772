"""Files that appear whole or not at all."""
import os


def replace(path, write):
    """`write(temporary)` writes a file beside `path`, which then takes its name; OSError where it cannot."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        try:
            write(temporary)
        except OSError:
            raise
        except Exception as error:  # safetensors and torch have errors of their own for a full disk
            raise OSError(f"cannot be written: {error}") from error
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)  # safetensors would keep it to the user alone
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)

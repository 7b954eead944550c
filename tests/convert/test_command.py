"""The command ``msdump convert``."""

from typing import ClassVar

import pytest

from tests.judge.dumped import NAME, names
from tests.world import cli


class TestCommand:
    """The command line."""

    @staticmethod
    def call(*arguments):
        """Run ``msdump convert``."""
        return cli("convert", *arguments)

    def test_a_summary_counts(self, tmp_path, image):
        """The summary counts files that were converted, kept and skipped."""
        (image.parent / "statistic.csv").write_text("x", encoding="utf-8")

        done = self.call("-d", image.parent, "-out", tmp_path / "out", "-f", "NCHW")

        assert (0, "") == (done.exit_code, done.stderr)
        assert done.stdout == (
            f"converted 1 dump file to 3 files, 2,012 bytes\n"
            f"into      {tmp_path}/out\n"
            f"kept      2 tensors of ND, the host's layout, instead of NCHW\n"
            f"skipped   1 file of other kinds (1 .csv)\n"
        )

    def test_failures_are_told(self, tmp_path, image):
        """Errors name file and tensor, the exit code is 1."""
        bad = image.parent / "bad"
        bad.write_bytes(b"bad")

        done = self.call(image.parent, "-out", tmp_path / "out")

        assert done.exit_code == 1
        assert f"msdump: error: {bad} at byte 0: not a dump file: 3 bytes" in done.stderr
        assert "failed    1 dump file, 1 error;" in done.stdout

    def test_many_failures_are_counted(self, tmp_path):
        """Ten errors are shown, the others with --verbose."""
        for number in range(12):
            (tmp_path / f"bad.{number}").write_bytes(b"bad")

        short = self.call(tmp_path, "-out", tmp_path / "out")
        long = self.call(tmp_path, "-out", tmp_path / "out", "--verbose")

        assert short.stderr.count("not a dump file") == 10
        assert "and 2 more (--verbose shows all)" in short.stderr
        assert long.stderr.count("not a dump file") == 12

    def test_msaccucmps_options(self, tmp_path, image):
        """The options have msaccucmp's spelling, commas between files and one index."""
        options = ["-f", "NHWC", "-s", "2,5,4,20", "-i", "0", "-v", "2", "-t", "bin", "-j", "1"]
        done = self.call("-d", f"{image},", "-out", tmp_path / "out", *options)

        assert (0, "") == (done.exit_code, done.stderr)
        assert [f"{NAME}.input.0.2_5_4_20.float16.NHWC.bin"] == names(tmp_path / "out")

    WRONG: ClassVar = {
        "nothing": ([], "give the dump files, or a directory of them"),
        "both indices": (["x", "-o", "0", "-i", "0"], "-o excludes -i"),
        "shape": (["x", "-s", "1,a"], "'1,a' is not a shape such as 1,3,224,224"),
        "format": (["x", "-f", "NCHV"], "x: no such file or directory"),
    }

    @pytest.mark.parametrize(("arguments", "message"), WRONG.values(), ids=WRONG)
    def test_wrong_command_lines(self, tmp_path, monkeypatch, arguments, message):
        """A wrong command line ends with 2 before anything is converted."""
        monkeypatch.chdir(tmp_path)

        done = self.call(*arguments)

        assert done.exit_code == 2
        assert message in done.stderr
        assert [] == names(tmp_path)

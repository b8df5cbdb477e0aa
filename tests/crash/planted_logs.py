"""Bugs put into the log of a run by text patches; see `planted`.

It decides which bugs there are and what must notice each. It refuses to touch the product.
"""

from runnerd.runs import run_file, run_log, run_writer
from tests.crash.planted import Patch

FILE_PATCHES = (
    Patch(
        "critical_sync_removed",
        run_writer,
        "                self._folder.fs.sync(descriptor)\n",
        "                pass\n",
        dies_by="I22",
    ),
    Patch(
        "failed_sync_tried_again",
        run_writer,
        "                self._folder.fs.sync(descriptor)\n",
        "                try:\n"
        "                    self._folder.fs.sync(descriptor)\n"
        "                except OSError:\n"
        "                    self._folder.fs.sync(descriptor)\n",
        dies_by="I7",
    ),
    Patch(
        "loaded_log_not_published_anew",
        run_writer,
        "            self._publish_whole_part()\n        self._is_stale = False\n",
        "            if self._end.is_torn:\n"
        "                self._publish_whole_part()\n"
        "            else:\n"
        "                self._descriptor = self._folder.fs.open_append(\n"
        "                    self._folder.directory, self._name)\n"
        "                self._seen = self._folder.fs.fstat(self._descriptor)\n"
        "        self._is_stale = False\n",
        dies_by="I22",
    ),
    Patch(
        "written_over_without_a_sync",
        run_writer,
        "                self._folder.sync_data(descriptor)\n",
        "                pass\n",
        dies_by="I22",
    ),
    Patch(
        "tail_left_when_written_over",
        run_writer,
        "                    fs.truncate(descriptor, self._end.complete_bytes)\n",
        "                    pass\n",
        dies_by="I22",
    ),
    Patch(
        "file_left_open",
        run_writer,
        "            close_quietly(self._folder.fs, self._descriptor)\n",
        "",
        dies_by="I21",
    ),
    Patch(
        "sibling_sync_removed",
        run_file,
        "                self.sync_data(descriptor)\n",
        "",
        dies_by="I22",
    ),
    Patch(
        "folder_sync_removed",
        run_file,
        "            raise _failed(error) from error\n        self.sync()\n",
        "            raise _failed(error) from error\n",
        dies_by="I22",
    ),
    Patch(
        "undecided_folder_synchronised_again",
        run_file,
        "        except OSError as error:\n            self._is_undecided = True\n",
        "        except OSError as error:\n",
        dies_by="I7",
    ),
    Patch(
        "short_write_believed",
        run_file,
        "        while written < len(data):\n",
        "        while False:\n",
        dies_by="I22",
    ),
    Patch(
        "published_in_place",
        run_file,
        "        try:\n            self._write_sibling(temp, pieces, mode)\n",
        "        pieces = [*pieces]\n"
        "        temp = name\n"
        "        self.discard(temp)\n"
        "        try:\n"
        "            self._write_sibling(temp, pieces, mode)\n",
        dies_by="I22",
    ),
    Patch(
        "leftovers_kept",
        run_file,
        "                self.discard(found)\n",
        "                pass\n",
        dies_by="I10",
    ),
)

READER_PATCHES = (
    Patch(
        "reader_skips_a_broken_line",
        run_log,
        '            raise self._damage("not JSON")\n',
        "            return None\n",
        dies_by="I22",
    ),
    Patch(
        "reader_takes_records_in_any_order",
        run_log,
        "        if record.sequence != self._count + 1:\n",
        "        if record.sequence > 4:\n",
        dies_by="I22",
    ),
    Patch(
        "reader_drops_what_it_had_already",
        run_log,
        "        if record.sequence != self._count + 1:\n",
        "        if record.sequence <= self._count:\n"
        "            return None\n"
        "        if record.sequence != self._count + 1:\n",
        dies_by="I22",
    ),
    Patch(
        "reader_believes_an_unterminated_line_of_ours",
        run_log,
        "        if self._is_chained():\n            return None, True\n",
        "",
        dies_by="I22",
    ),
    Patch(
        "reader_mends_the_only_line",
        run_log,
        "        if self._count == 0:\n",
        "        if False:\n",
        dies_by="I22",
    ),
    Patch(
        "reader_skips_blank_lines_of_ours",
        run_log,
        "        if not self._is_chained() and _is_blank(line):\n",
        "        if _is_blank(line):\n"
        "            return None\n"
        "        if not self._is_chained() and _is_blank(line):\n",
        dies_by="I22",
    ),
    Patch(
        "link_not_compared",
        run_log,
        "        if link.hex().encode() != line",
        "        if b'' != line[:0] and link.hex().encode() != line",
        dies_by="I22",
    ),
)

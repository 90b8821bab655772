// Which files a data set of texts or tokens is made of, and which folders its paths pass over.
#pragma once
#include <string>
#include <vector>

namespace ada::data {

struct FileList {
  std::vector<std::string> files;  // those of each path in byte order
  // One line for each path that has folders in it, or matches some, of which nothing is read:
  // "corpus: 2 folders in it are not read: AA, AB (data.path: corpus/*/* takes their files)".
  std::vector<std::string> not_read;
};

// The files that paths name: a file, a folder (its files but for hidden ones; with `ending` those
// alone), or a pattern whose parts may be patterns of names (texts/*/*.txt). DataError: nothing
// there, a file twice.
FileList ListTokenFiles(const std::vector<std::string>& paths, const std::string& ending);

}  // namespace ada::data

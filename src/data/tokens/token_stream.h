// The data sets `text` and `tokens`: files as one long sequence, of which windows are learned.
#pragma once
#include <string>
#include <vector>

#include "data/dataset.h"

namespace ada::data {

// Texts whose bytes are the tokens: all files, one after the other in their order, are one text. Of
// its bytes the last share `choices.validation` is split `validation`. DataError: no files, or a
// split shorter than one window.
Splits OpenText(const std::vector<std::string>& paths, const FileChoices& choices);
// Files of whole numbers. Of a folder the files *.bin, those with "val" in their names being split
// `validation`; else as of a text.
Splits OpenTokens(const std::vector<std::string>& paths, const FileChoices& choices);

}  // namespace ada::data

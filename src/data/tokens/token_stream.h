// The data sets `text` and `tokens`: files as one long sequence, of which windows are learned.
#pragma once
#include <string>
#include <vector>

#include "data/dataset.h"

namespace ada::data {

// Texts whose bytes are the tokens: all files, one after the other in their order, are one text.
// The last share `choices.validation` of its bytes is split `validation`. DataError: no files, or a
// split shorter than one window.
Splits OpenText(const std::vector<std::string>& paths, const FileChoices& choices);
// Files of whole numbers. From a folder the files *.bin are taken, those with "val" in their names
// being split `validation`; else as for a text.
Splits OpenTokens(const std::vector<std::string>& paths, const FileChoices& choices);

}  // namespace ada::data

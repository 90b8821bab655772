// score: computes metrics of any program's detections and label images with the labels of a data
// set, as in the papers on VOC and CamVid. Both functions write CSV or a table to `out`, and
// further remarks for its reader to `notes`; both throw DataError if a file is invalid.
#pragma once
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "study/commands.h"

namespace ada::study {

// Both folders and lists are those of the PASCAL VOC devkit.
struct VocScoreOptions {
  std::vector<std::string> folders;  // in VOC's layout or of years, one after the other
  std::string split = "test";
  std::string detections;  // CSV with the columns image,label,score,xmin,ymin,xmax,ymax
  double overlap = 0.5;    // IoU from which a detection is right
  View view = View::kCsv;
};

// Average precision of each class, of the labels' and the detections' classes together, and the row
// `map`. Boxes of the CSV are in pixels from 0 and count as they stand; `image` is a name of the
// split's list, and one that is not there is an error.
void ScoreVoc(const VocScoreOptions& options, std::ostream& out, std::ostream& notes);

struct SegmentationScoreOptions {
  std::string labels, predictions;  // folders of PNG files of the same names
  std::optional<int> ignored;       // a label whose pixels are not counted
  View view = View::kCsv;
};

// IoU and accuracy of each class up to the largest label that occurs, and the row `all`.
void ScoreSegmentation(const SegmentationScoreOptions& options, std::ostream& out,
                       std::ostream& notes);

}  // namespace ada::study

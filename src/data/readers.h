// The readers of data sets, a function for each kind of files: read_set.cpp calls the one that the
// catalog names. How the files lie stands above each.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/catalog.h"
#include "data/dataset.h"

namespace ada::data {

// Reads the `images` records of `path`, a file of the binary version of CIFAR-10 or CIFAR-100
// (https://www.cs.toronto.edu/~kriz/cifar.html; not the Python or Matlab versions). A record is one
// label byte (CIFAR-100: coarse, then fine) and 3 x 1024 pixels, a plane a color, row by row. The
// file must have exactly that many; they go into images `first` and following of `into`, which has
// room for them; pixels to [h, w, c]. Throws DataError: missing, truncated, oversized, a label out
// of range. Safe from several threads, each with images of its own.
void ReadCifarFile(const DatasetFacts& facts, const std::string& path, std::int64_t images,
                   const std::string& advice, std::int64_t first, Dataset* into);

// Only looks at the file's size; throws as above.
void CheckCifarFile(const DatasetFacts& facts, const std::string& path, std::int64_t images,
                    const std::string& advice);

// The data set `folder`: pictures in PATH/train/CLASS and PATH/val/CLASS (or PATH/test/CLASS).
// `val` may be called valid, validation or dev; beside `test` it is split `validation`, else split
// `test`. Without any of them, or where PATH itself holds the classes, split `test` is what
// FileChoices::held_back asks to hold back. Lists both splits; no picture is read, so sizes are not
// known yet. Throws DataError: what ListPictures throws; a split is missing; PATH is a split
// itself, or holds a root where a class should be; the splits have other classes.
Splits OpenFolder(const std::string& path, const FileChoices& choices = {});

// The size of the set's first picture that can be read; of its very first one unless `skip_broken`.
// DataError naming the file.
PictureSize SizeOfFirst(const Dataset& dataset, bool skip_broken);

// Throws DataError naming the first picture whose size does not become `wanted`, and what to set;
// `after` computes a size's result. Reads the beginning of every file; with `skip_broken`,
// unreadable files are left to be reported when they are decoded.
void RequireOneSize(const Dataset& dataset, PictureSize wanted,
                    const std::function<PictureSize(PictureSize)>& after, bool skip_broken);

// The data set `tensors`: train.images, train.labels, test.images and test.labels of one file.
// Reads the labels; images stay in the file, or packed, until they are asked for. Throws DataError
// naming file and tensor: missing, of a wrong type or shape, labels below 0 or out of range. Images
// whose channels stand first are put into memory with their channels last, as all others are.
Splits OpenTensors(const std::string& path, ArrayLayout layout = ArrayLayout::kAuto);

// The data set `camvid`: pictures in PATH/SPLIT, and for each a label image of the same name (but
// the ending) in PATH/SPLITannot, as the authors of SegNet laid out CamVid. Without names of
// classes the set has CamVid's eleven, and label 11 is ignored; with them 255 is, unless
// `ignored_label` says otherwise. It only lists files; splits are train and test unless they are
// named. Pictures and label images come in byte order of their names. The note says which label
// images are not used. Throws DataError: a folder is missing or empty, a picture has no label image
// (unless `skip_broken`), is there twice (with two endings); ConfigError: too many classes.
Splits OpenCamvid(const std::string& path, const FileChoices& choices);

// The data set `voc`: PATH/ImageSets/Main/SPLIT.txt lists names, PATH/JPEGImages/NAME.jpg are the
// pictures and PATH/Annotations/NAME.xml their boxes, as in PASCAL VOC. Reads the lists and all XML
// files; several years one after the other. PATH may hold the years as folders (VOC2007, VOC2012;
// VOCdevkit). Splits are trainval and test unless they are named; a year without the list of the
// split `test` has none of it, which the note says. The classes are those of `class_names`, else
// those of the annotations of both splits in byte order (VOC's own order, which is the same, where
// they are VOC's twenty). Throws DataError naming the file: a folder or list is missing, a name
// without picture or XML, what ReadAnnotation throws, a size other than the picture's, a class that
// is not among the names; with `skip_broken` such images are left out (Dataset::left_out), unless a
// split has no others. The note says of each split which boxes are left out of training
// (TrainingBoxes), and names the first of each kind.
Splits OpenVoc(const std::string& path, const FileChoices& choices);

// Sequences of the data set `tensors`: arrays of whole numbers [n, tokens]. train.tokens and
// train.targets (where they are missing: of each token the next one, and none of the last), and of
// split test the same, which need not be there. Tokens are of any integer type; targets are
// kIgnoredTarget where there is none. The vocabulary is `choices.vocabulary`, or the largest number
// and one. DataError naming file, tensor and place.
Splits OpenTokenTensors(const std::string& path, const FileChoices& choices);

// The data set `text`: one long sequence, of which windows are learned. The bytes of the texts are
// the tokens: all files, one after the other in their order, are one text. The last share
// `choices.validation` of its bytes is split `validation`. DataError: no files, or a split shorter
// than one window.
Splits OpenText(const std::vector<std::string>& paths, const FileChoices& choices);
// The data set `tokens`: the same of files of whole numbers. From a folder the files *.bin are
// taken, those with "val" in their names being split `validation`; else as for a text.
Splits OpenTokens(const std::vector<std::string>& paths, const FileChoices& choices);

}  // namespace ada::data

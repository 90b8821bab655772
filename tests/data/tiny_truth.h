// Small data sets with label images and with boxes, made at run time in the layouts of CamVid and
// PASCAL VOC.
#pragma once
#include <string>
#include <vector>

#include "data/images/picture.h"
#include "tiny_files.h"

namespace ada::data {

inline Picture TinyPicture(int height, int width, int channels, int seed) {
  Picture picture{height, width, channels, {}};
  for (std::int64_t p = 0; p < std::int64_t{height} * width * channels; ++p)
    picture.pixels.push_back(static_cast<std::uint8_t>(p * p / 50 + p + seed * 31));
  return picture;
}

inline void PutPicture(const std::string& path, const Picture& picture) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  WritePng(path, picture);
}

// Labels 0 to `classes` - 1 in blocks of 4 x 4 pixels; each seventh block is `ignored`.
inline Picture TinyLabels(int height, int width, int classes, int ignored, int seed) {
  Picture labels{height, width, 1, {}};
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) {
      const int block = y / 4 * 5 + x / 4 + seed;
      labels.pixels.push_back(
          static_cast<std::uint8_t>(block % 7 == 6 ? ignored : block % classes));
    }
  return labels;
}

// `images` pictures of height x width in each of the splits.
inline void PutCamvid(const testing::TempFolder& folder, int images, int height, int width,
                      int classes = 11, int ignored = 11) {
  for (const char* split : {"train", "test"})
    for (int i = 0; i < images; ++i) {
      const std::string name = "/" + std::to_string(100 + i) + ".png";
      PutPicture(folder / (split + name), TinyPicture(height, width, 3, i));
      PutPicture(folder / (std::string(split) + "annot" + name),
                 TinyLabels(height, width, classes, ignored, i));
    }
}

// Corners as they stand in the XML: from 1, the last pixel included.
struct TinyObject {
  std::string name;
  int xmin, ymin, xmax, ymax;
  bool difficult = false;
};

inline std::string TinyXml(int height, int width, const std::vector<TinyObject>& objects) {
  std::string xml = "<annotation>\n  <size><width>" + std::to_string(width) + "</width><height>" +
                    std::to_string(height) + "</height><depth>3</depth></size>\n";
  for (const TinyObject& o : objects)
    xml += "  <object>\n    <name>" + o.name + "</name><difficult>" + (o.difficult ? "1" : "0") +
           "</difficult>\n    <bndbox><xmin>" + std::to_string(o.xmin) + "</xmin><ymin>" +
           std::to_string(o.ymin) + "</ymin><xmax>" + std::to_string(o.xmax) + "</xmax><ymax>" +
           std::to_string(o.ymax) + "</ymax></bndbox>\n  </object>\n";
  return xml + "</annotation>\n";
}

inline void PutText(const std::string& path, const std::string& text) {
  WriteFile(path, Bytes(text.begin(), text.end()));
}

// One image of a year's folder, and its line in the list of a split.
inline void PutVocImage(const std::string& year, const std::string& split, const std::string& name,
                        int height, int width, const std::vector<TinyObject>& objects) {
  PutPicture(year + "/JPEGImages/" + name + ".png",
             TinyPicture(height, width, 3, static_cast<int>(name.size())));
  PutText(year + "/Annotations/" + name + ".xml", TinyXml(height, width, objects));
  const std::string list = year + "/ImageSets/Main/" + split + ".txt";
  std::filesystem::create_directories(std::filesystem::path(list).parent_path());
  std::ofstream(list, std::ios::app) << name << "\n";
}

inline void PutVoc(const std::string& year, int images, int height = 60, int width = 80) {
  for (const char* split : {"trainval", "test"})
    for (int i = 0; i < images; ++i)
      PutVocImage(year, split, std::string(split) + std::to_string(100 + i), height, width,
                  {{"cat", 5 + i, 4, 30 + i, 40}, {"dog", 20, 10 + i, 70, 50 + i}});
}

}  // namespace ada::data

// The data set voc: annotations, lists, years, what training leaves out, and what is wrong with
// files.
#include <doctest/doctest.h>

#include "data/detection/voc_files.h"
#include "data/readers.h"
#include "tiny_truth.h"

namespace ada::data {
namespace {

std::string Refusal(const std::string& xml) {
  return MessageOf("no such folder", [&] { ParseAnnotation(xml, "a.xml"); });
}

std::string WithBox(const std::string& box) {
  return "<annotation><object><name>cat</name>" + box + "</object></annotation>";
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("annotation: boxes in pixels from 0, as they stand") {
    const Annotation read = ParseAnnotation(
        "<?xml version=\"1.0\"?>\n<annotation>\n<size><width>80</width><height>60</height></size>\n"
        "<object><name> cat </name><difficult>1</difficult>\n"
        "<bndbox><xmin>1</xmin><ymin>2.5</ymin><xmax>80</xmax><ymax>60</ymax></bndbox>\n"
        "<part><name>head</name><bndbox><xmin>3</xmin></bndbox></part></object>\n"
        "<object><name>dog &amp; bone</name>\n"
        "<bndbox><ymax>3</ymax><xmin>10</xmin><xmax>9</xmax><ymin>3</ymin></bndbox></object>"
        "</annotation>",
        "a.xml");
    CHECK(read.size == PictureSize{60, 80});
    REQUIRE(read.objects.size() == 2);
    CHECK(read.objects[0].name == "cat");
    CHECK(read.objects[0].difficult);
    CHECK(read.objects[0].box == vision::Box{1.5F, 0, 59, 79});
    CHECK(read.objects[0].line == 4);
    CHECK(read.objects[1].name == "dog & bone");
    CHECK(read.objects[1].box == vision::Box{2, 9, 2, 8});
    CHECK(ParseAnnotation("<annotation/>", "a.xml").size == PictureSize{});
    CHECK(ParseAnnotation(
              "<annotation><size><width>0</width><height>9</height></size></annotation>", "a.xml")
              .size == PictureSize{});
  }

  TEST_CASE("annotation: other encodings") {
    const std::string latin =
        "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><annotation><object><name>K\xF6ter</name>"
        "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox></object>"
        "</annotation>";
    CHECK(ParseAnnotation(latin, "a.xml").objects.at(0).name == "K\xC3\xB6ter");
    CHECK(ParseAnnotation("\xEF\xBB\xBF<annotation/>", "a.xml").objects.empty());
  }

  TEST_CASE("annotation: UTF-16, with and without a byte order mark") {
    const std::string plain = "<annotation>\n<object/></annotation>";
    for (const bool big : {false, true}) {
      for (const bool marked : {false, true}) {
        std::string wide = !marked ? "" : big ? "\xFE\xFF" : "\xFF\xFE";
        for (const char c : plain) wide += big ? std::string{'\0', c} : std::string{c, '\0'};
        CHECK(Refusal(wide).starts_with("a.xml: line 2: an <object> without <name>"));
        CHECK(Refusal(wide + "\n").starts_with("a.xml: line 2: the byte '\\xff' is no UTF-8"));
      }
    }
  }

  TEST_CASE("annotation: names are UTF-8 whatever encoding the file declares") {
    struct Declared {
      const char *encoding, *bytes, *name;
    };
    for (const Declared& d :
         {Declared{"windows-1252", "caf\xE9 \x80", "café €"}, Declared{"ISO-8859-15", "\xA4", "€"},
          Declared{"Big5", "\xAA\xAF", "狗"}, Declared{"GBK", "\xB9\xB7", "狗"},
          Declared{"KOI8-R", "\xCB\xCF\xD4", "кот"}, Declared{"Shift_JIS", "\x8C\xA2", "犬"},
          Declared{"EUC-KR", "\xB0\xB3", "개"}, Declared{"IBM850", "K\x94ter", "Köter"},
          Declared{"latin-1", "\xF6", "ö"}, Declared{"us-ascii", "cat", "cat"},
          Declared{"klingon", "cat", "cat"}, Declared{"utf-16", "k\xC3\xB6", "kö"}}) {
      CAPTURE(d.encoding);
      const std::string xml =
          "<?xml version=\"1.0\" encoding=\"" + std::string(d.encoding) +
          "\"?>\n<annotation><object><name>" + d.bytes +
          "</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax>"
          "</bndbox></object></annotation>";
      CHECK(ParseAnnotation(xml, "a.xml").objects.at(0).name == d.name);
    }
  }

  TEST_CASE("annotation: parts of a text, entities and blanks are what XML says they are") {
    const auto name = [](const std::string& text) {
      return ParseAnnotation("<annotation><object><name>" + text +
                                 "</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax><!-- in "
                                 "pixels -->3<![CDATA[2]]></xmax><ymax>2</ymax></bndbox>"
                                 "</object></annotation>",
                             "a.xml")
          .objects.at(0)
          .name;
    };
    CHECK(name("cat<!-- not a dog --> and <![CDATA[<dog> & co]]>") == "cat and <dog> & co");
    CHECK(name("a<!-- --> <!-- -->b") == "a b");
    CHECK(name("&lt;K&#246;ter&gt; &#x1F415;&amp;amp;") == "<K\xC3\xB6ter> \xF0\x9F\x90\x95&amp;");
    const Annotation read = ParseAnnotation(
        "<?xml version='1.0'?><!DOCTYPE annotation><!-- made by hand -->\n<annotation><object>"
        "<name>cat</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>3<!-- -->2</xmax><ymax>2</ymax>"
        "</bndbox><part><name>head</name><bndbox/></part></object></annotation>\n <!-- end -->",
        "a.xml");
    CHECK(read.objects.at(0).box.x1 == 31);
    CHECK(read.objects.at(0).line == 2);
  }

  TEST_CASE("annotation: what XML does not say, or says twice, is named with its line") {
    const std::string end = "; expected an annotation as PASCAL VOC's";
    const auto object = [](const std::string& inner) {
      return "<annotation>\n<object><name>cat</name>\n" + inner + "</object></annotation>";
    };
    const std::string box =
        "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox>\n";
    CHECK(Refusal(object(box)) == "");
    CHECK(Refusal(object(box + box)) ==
          "a.xml: line 4: a second <bndbox> in one <object>, and there may be one" + end);
    CHECK(Refusal(object("<name>dog</name>" + box)) ==
          "a.xml: line 3: a second <name> in one <object>, and there may be one" + end);
    CHECK(Refusal(object("<bndbox>\n<xmin>1</xmin><xmin>1</xmin></bndbox>")) ==
          "a.xml: line 3: a <bndbox> without <ymin>" + end);
    CHECK(Refusal(object("<bndbox><ymin>1</ymin>\n<xmin>1</xmin>\n<xmin>1</xmin></bndbox>")) ==
          "a.xml: line 5: a second <xmin> in one <bndbox>, and there may be one" + end);
    CHECK(Refusal("<annotation/>\n<annotation/>") ==
          "a.xml: line 2: a second root element, <annotation>" + end);
    CHECK(Refusal("<annotation/>\nboxes") ==
          "a.xml: line 2: text outside of the root element: 'boxes'" + end);
    CHECK(Refusal("boxes<annotation/>") ==
          "a.xml: line 1: text outside of the root element: 'boxes'" + end);
    CHECK(Refusal("<annotation>\n<object><name><b>cat</b></name>" + box) != "");  // not even closed
    CHECK(Refusal("<annotation>\n<object><name><b>cat</b></name></object></annotation>") ==
          "a.xml: line 2: <b> within <name>, which holds text alone" + end);
    const std::string known =
        " begins with & and is no entity that is known here; expected &amp;, &lt;, &gt;, &quot;, "
        "&apos; or the number of a character (&#233;)" +
        end;
    for (const char* entity : {"&eacute;", "&cat;", "&#0;", "&#xD800;", "&#x110000;", "&#;", "&;",
                               "&#99999999999999;"}) {
      const std::string shown = std::string(entity).substr(0, 16);
      CAPTURE(shown);
      CHECK(Refusal("<annotation>\n<object><name>a" + std::string(entity) +
                    "</name></object></annotation>")
                .find(std::string("a.xml: line 2: '") + shown.substr(0, 3)) == 0);
    }
    CHECK(Refusal("<annotation><object><name>&cat;</name></object></annotation>") ==
          "a.xml: line 1: '&cat;'" + known);
    const std::string encodings =
        "; expected UTF-8, UTF-16, or another encoding that the file declares";
    CHECK(Refusal("<annotation>\n<name>K\xF6ter</name></annotation>") ==
          "a.xml: line 2: the byte '\\xf6' is no UTF-8" + encodings);
    CHECK(Refusal("<?xml version=\"1.0\" encoding=\"klingon\"?>\n<annotation>\xB9</annotation>") ==
          "a.xml: line 2: the byte '\\xb9' is in the encoding 'klingon', which is not known here; "
          "expected UTF-8, UTF-16, or another encoding that the file declares and that the command "
          "iconv -l lists");
    CHECK(
        Refusal("<?xml version=\"1.0\" encoding=\"GBK\"?>\n<annotation>\xB9</annotation>") ==
        "a.xml: line 2: the byte '\\xb9' is no 'gbk', the encoding that the file declares; save it "
        "anew, in UTF-8");
    CHECK(Refusal("<annotation>\n\n<name>a\x01</name></annotation>") ==
          "a.xml: line 3: the byte '\\x01' is a control character" + encodings);
    CHECK(Refusal(std::string("<annotation>\n\0</annotation>", 27)) ==
          "a.xml: line 2: the byte '\\x00' is a control character" + encodings);
  }

  TEST_CASE("annotation: each of many objects knows its line") {
    std::string xml = "<annotation>\n";
    constexpr int kObjects = 100'000;
    for (int i = 0; i < kObjects; ++i)
      xml +=
          "<object><name>cat</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>3</xmax>"
          "<ymax>2</ymax></bndbox></object>\n";
    const Annotation read = ParseAnnotation(xml + "</annotation>", "a.xml");
    REQUIRE(read.objects.size() == kObjects);
    CHECK(read.objects.front().line == 2);
    CHECK(read.objects.back().line == kObjects + 1);
  }

  TEST_CASE("annotation: what is wrong is named with its line") {
    const std::string end = "; expected an annotation as PASCAL VOC's";
    CHECK(Refusal("<annotation>\n<size>\n</annotation>") ==
          "a.xml: line 3: this is no XML: Start-end tags mismatch" + end);
    CHECK(Refusal("") == "a.xml: line 1: there is no <annotation>" + end);
    CHECK(Refusal("{}") == "a.xml: line 1: text outside of the root element: '{}'" + end);
    CHECK(Refusal("<a/>") == "a.xml: line 1: there is no <annotation>" + end);
    CHECK(Refusal("<annotation>\n<object/></annotation>") ==
          "a.xml: line 2: an <object> without <name>" + end);
    CHECK(Refusal(WithBox("")) == "a.xml: line 1: the object 'cat' has no <bndbox>" + end);
    CHECK(Refusal(WithBox("<bndbox><ymin>1</ymin></bndbox>")) ==
          "a.xml: line 1: a <bndbox> without <xmin>" + end);
    CHECK(Refusal(WithBox("<bndbox><ymin>one</ymin></bndbox>")) ==
          "a.xml: line 1: <ymin> is 'one', no number" + end);
    CHECK(Refusal(WithBox("<bndbox><ymin>nan</ymin></bndbox>")) ==
          "a.xml: line 1: <ymin> is 'nan', no place in a picture" + end);
    CHECK(Refusal(WithBox("<bndbox><ymin>1e9</ymin></bndbox>")) ==
          "a.xml: line 1: <ymin> is '1e9', no place in a picture" + end);
    CHECK(Refusal(WithBox("<difficult>2</difficult>")) ==
          "a.xml: line 1: <difficult> is '2', neither 0 nor 1" + end);
    CHECK(Refusal("<annotation><size><width>6.5</width></size></annotation>") ==
          "a.xml: line 1: <width> of the image is '6.5', no whole number" + end);
  }

  TEST_CASE("voc: lists, pictures, boxes and classes in byte order") {
    const testing::TempFolder folder;
    PutVoc(folder.path(), 3);
    const Splits splits = OpenVoc(folder.path(), {});
    CHECK(splits.train.images() == 3);
    CHECK(splits.test.images() == 3);
    CHECK(splits.class_names == std::vector<std::string>{"cat", "dog"});
    CHECK(splits.note.empty());
    CHECK(splits.train.task() == Task::kDetection);
    CHECK(splits.train.height == 60);
    CHECK(splits.train.store->NameOf(1) == folder / "JPEGImages/trainval101.png");
    const ImageObjects& objects = (*splits.train.objects)[1];
    CHECK(objects.name == "trainval101");
    CHECK(objects.size == PictureSize{60, 80});
    REQUIRE(objects.boxes.size() == 2);
    CHECK(objects.boxes[0].box == vision::Box{3, 5, 39, 30});
    CHECK(objects.boxes[1].label == 1);
    FileChoices choices;
    choices.class_names = {"zebra", "dog", "cat"};
    choices.train = "test";
    const Splits named = OpenVoc(folder.path(), choices);
    CHECK(named.train.classes == 3);
    CHECK((*named.train.objects)[0].boxes[0].label == 2);
    CHECK((*named.train.objects)[0].name == "test100");
  }

  TEST_CASE("voc: years of a folder or of a list, and one without the split test") {
    const testing::TempFolder folder;
    PutVoc(folder / "VOCdevkit/VOC2007", 2);
    PutVocImage(folder / "VOCdevkit/VOC2012", "trainval", "late", 60, 80, {{"cat", 1, 1, 9, 9}});
    const Splits splits = OpenVoc(folder.path(), {});
    CHECK(splits.train.images() == 3);
    CHECK(splits.test.images() == 2);
    CHECK((*splits.train.objects)[2].name == "late");
    CHECK(splits.note == folder / "VOCdevkit/VOC2012: has no list of split test");
    FileChoices choices;
    choices.more_paths = {folder / "VOCdevkit/VOC2007"};
    const Splits turned = OpenVoc(folder / "VOCdevkit/VOC2012", choices);
    CHECK((*turned.train.objects)[0].name == "late");
    CHECK(turned.train.images() == 3);
  }

  TEST_CASE("voc: without a list `test` nothing is evaluated that was trained on") {
    const testing::TempFolder folder;
    const std::string lists = folder / "ImageSets/Main/";
    for (const char* name : {"a", "b", "c"})
      PutVocImage(folder.path(), "trainval", name, 60, 80, {{"cat", 1, 1, 9, 9}});
    PutText(lists + "train.txt", "a\nb\n");
    PutText(lists + "val.txt", "c\n");
    const Splits splits = OpenVoc(folder.path(), {});
    CHECK(splits.train.images() == 2);
    CHECK((*splits.test.objects)[0].name == "c");
    CHECK(splits.warnings.empty());
    FileChoices choices;
    choices.train = "trainval";
    const Splits asked = OpenVoc(folder.path(), choices);
    CHECK(asked.train.images() == 3);
    CHECK(asked.warnings ==
          std::vector<std::string>{"1 of 1 images of split test are in the list of split train as "
                                   "well (data.splits)"});
    PutText(lists + "test.txt", "c\n");
    CHECK(OpenVoc(folder.path(), {}).train.images() == 3);
  }

  TEST_CASE("voc: an image twice in a list, and a year twice, are refused") {
    const testing::TempFolder folder;
    PutVoc(folder / "2007", 2);
    const std::string list = folder / "2007/ImageSets/Main/trainval.txt";
    std::ofstream(list, std::ios::app) << "trainval100 -1\n";
    CHECK(MessageOf(folder.path(), [&] { OpenVoc(folder / "2007", {}); }) ==
          "DIR/2007/ImageSets/Main/trainval.txt: line 3: 'trainval100' is there twice, first in "
          "line 1; expected each name once");
    PutText(list, "trainval100\n");
    FileChoices choices;
    choices.more_paths = {folder / "2007/../2007"};
    CHECK(MessageOf(folder.path(), [&] { OpenVoc(folder / "2007", choices); }) ==
          "DIR/2007/../2007: is given twice (as DIR/2007); expected each year once");
    PutVoc(folder / "2012", 2);
    choices.more_paths = {folder / "2012"};
    CHECK(MessageOf(folder.path(), [&] { OpenVoc(folder / "2007", choices); }) ==
          "DIR/2012/ImageSets/Main/trainval.txt: line 1: 'trainval100' is there twice, first in "
          "DIR/2007/ImageSets/Main/trainval.txt: line 1; expected each name once, since detections "
          "name no year");
  }

  TEST_CASE("voc: what training leaves out is told, and a metric keeps it") {
    const testing::TempFolder folder;
    PutVoc(folder.path(), 1);
    PutVocImage(folder.path(), "trainval", "odd", 60, 80,
                {{"cat", 10, 10, 10, 30},
                 {"cat", 30, 10, 20, 30},
                 {"cat", 100, 10, 120, 30},
                 {"cat", 60, 10, 95, 30},
                 {"dog", 5, 5, 20, 20, true},
                 {"dog", 5, 5, 20, 20}});
    PutText(folder / "Annotations/odd2.xml", "<annotation></annotation>");
    PutPicture(folder / "JPEGImages/odd2.jpg", TinyPicture(10, 12, 3, 1));  // by its content a PNG
    std::ofstream(folder / "ImageSets/Main/trainval.txt", std::ios::app) << "odd2  -1\r\n\n";
    PutVocImage(folder.path(), "test", "odd3", 60, 80, {{"cat", 30, 10, 20, 30}});
    const Splits splits = OpenVoc(folder.path(), {});
    const ImageObjects& odd = (*splits.train.objects)[1];
    CHECK(odd.boxes.size() == 6);
    const std::vector<vision::LabeledBox> trained = TrainingBoxes(odd);
    REQUIRE(trained.size() == 2);
    CHECK(trained[0].box == vision::Box{9, 59, 29, 80});
    CHECK(trained[1].label == 1);
    CHECK((*splits.train.objects)[2].size == PictureSize{10, 12});
    std::string note = splits.note;
    for (auto at = note.find(folder.path()); at != std::string::npos; at = note.find(folder.path()))
      note.replace(at, folder.path().size(), "DIR");
    CHECK(
        note ==
        "split train: 1 box without area (DIR/Annotations/odd.xml: line 3): left out of training; "
        "split train: 1 inverted box (DIR/Annotations/odd.xml: line 7): left out of training; "
        "split train: 1 box outside its picture (DIR/Annotations/odd.xml: line 11): left out of "
        "training; split train: 1 box that reaches beyond its picture (DIR/Annotations/odd.xml: "
        "line 15): cut off there for training; split train: 1 file without the picture's size "
        "(DIR/Annotations/odd2.xml): the picture's own size is taken; split test: 1 inverted box "
        "(DIR/Annotations/odd3.xml: line 3): left out of the loss");
  }

  TEST_CASE("voc: what cannot be used is named, or left out and told") {
    const testing::TempFolder folder;
    PutVoc(folder.path(), 2);
    const auto message = [&](const FileChoices& choices = {}) {
      return MessageOf(folder.path(), [&] { OpenVoc(folder.path(), choices); });
    };
    FileChoices named;
    named.class_names = {"cat", "dig"};
    CHECK(message(named) ==
          "DIR/Annotations/trainval100.xml: line 7: the class 'dog' is not among "
          "data.class_names; did you mean 'dig'?; add it there, mend the file, or leave the image "
          "out with data.on_broken: skip");
    PutText(folder / "Annotations/trainval101.xml", TinyXml(30, 80, {}));
    CHECK(message() ==
          "DIR/Annotations/trainval101.xml: <size> is 80 x 30 pixels, and "
          "DIR/JPEGImages/trainval101.png has 80 x 60 pixels: its boxes may be those of another "
          "picture; "
          "mend the size, or leave the image out with data.on_broken: skip");
    std::filesystem::remove(folder / "JPEGImages/trainval101.png");
    CHECK(message() ==
          "DIR/ImageSets/Main/trainval.txt: line 2: 'trainval101' has no picture: no file "
          "DIR/JPEGImages/trainval101.jpg (nor .jpeg, .png, .webp); put it there, take the name "
          "out of "
          "the list, or leave it out with data.on_broken: skip");
    FileChoices skip;
    skip.skip_broken = true;
    const Splits left = OpenVoc(folder.path(), skip);
    CHECK(left.train.images() == 1);
    CHECK(left.test.left_out.empty());
    REQUIRE(left.train.left_out.size() == 1);
    CHECK(left.train.left_out[0].file == folder / "JPEGImages/trainval101.jpg");
    CHECK(LeftOutText("train", left.train.left_out[0])
              .starts_with("split train: " + (folder / "ImageSets/Main/trainval.txt: line 2: ")));
    std::filesystem::remove(folder / "Annotations/trainval100.xml");
    CHECK(message().find("DIR/ImageSets/Main/trainval.txt: line 1: 'trainval100' has no "
                         "annotation: no file DIR/Annotations/trainval100.xml") == 0);
    CHECK(message(skip).starts_with(
        "data.path: none of the images that split train lists can be used; the first: "
        "DIR/ImageSets/Main/trainval.txt: line 1: 'trainval100' has no annotation"));
    FileChoices other;
    other.train = "train";
    CHECK(message(other).find("DIR/ImageSets/Main/train.txt: no such file") == 0);
    // Each split has faults, and the message is about the one that has nothing else.
    PutVoc(folder / "faulty", 2);
    PutText(folder / "faulty/Annotations/trainval100.xml", "no XML");
    PutText(folder / "faulty/ImageSets/Main/test.txt", "ghost\nspirit\n");
    CHECK(MessageOf(folder.path(), [&] { OpenVoc(folder / "faulty", skip); })
              .starts_with("data.path: none of the images that split test lists can be used; the "
                           "first: DIR/faulty/ImageSets/Main/test.txt: line 1: 'ghost'"));
    std::filesystem::remove(folder / "faulty/ImageSets/Main/test.txt");
    PutVocImage(folder / "faulty", "test", "good", 60, 80, {{"cat", 1, 1, 9, 9}});
    PutVocImage(folder / "faulty", "test", "other", 60, 80, {{"cat", 1, 1, 9, 9}});
    PutText(folder / "faulty/Annotations/other.xml", TinyXml(30, 80, {}));
    const Splits both = OpenVoc(folder / "faulty", skip);
    REQUIRE(both.train.left_out.size() == 1);
    REQUIRE(both.test.left_out.size() == 1);
    CHECK(both.train.left_out[0].file == folder / "faulty/Annotations/trainval100.xml");
    CHECK(both.test.left_out[0].file == folder / "faulty/Annotations/other.xml");
    CHECK(both.note.empty());
    CHECK(MessageOf(folder.path(), [&] {
            OpenVoc(folder / "no", {});
          }).find("DIR/no: no such folder") == 0);
    CHECK(MessageOf(folder.path(), [&] {
            OpenVoc(folder / "JPEGImages", {});
          }).find("DIR/JPEGImages: holds no folder ImageSets") == 0);
  }
}

}  // namespace ada::data

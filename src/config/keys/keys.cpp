// How each kind of key reads and writes its field.
// Each makes the closures `read` and `write` of a Key and the schemas that say the same to
// programs. A value that is refused leaves the field as it was and adds one problem at the value's
// place.
#include "config/keys/keys.h"

#include <algorithm>
#include <set>

#include "io/text.h"

namespace ada::config {
namespace {

std::string JoinNames(const Names& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// Adds `refusal` as a problem unless it is empty; true when there was none.
bool Accept(const std::string& refusal, const YamlNode& node, const ReadContext& context) {
  if (!refusal.empty()) context.problems.Add(node, context.path, refusal);
  return refusal.empty();
}

// The index of `node` in `words`; if it is none of them, nullopt and a problem. A wrong word gets a
// hint: our name for what another program calls so, or the nearest of our words.
std::optional<std::size_t> ReadWord(const YamlNode& node, const Names& words,
                                    const ReadContext& context) {
  const std::string what = "one of " + JoinNames(words);
  std::string text;
  if (node.kind != YamlNode::Kind::kScalar || !ReadText(node, text).empty()) {
    Accept(Expected(what, node), node, context);
    return std::nullopt;
  }
  const auto found = std::find(words.begin(), words.end(), text);
  if (found != words.end()) return static_cast<std::size_t>(found - words.begin());
  const std::string foreign = ForeignWordHint(context.path, text);
  const std::string nearest = foreign.empty() ? NearestName(text, words) : "";
  const std::string hint =
      nearest.empty() ? AsEnding(foreign) : "; did you mean '" + nearest + "'?";
  Accept(Expected(what, node) + hint, node, context);
  return std::nullopt;
}

// Reads every item of a list with `read_item`.
// A problem in one item does not keep the others from being read: all are told at once.
void ReadList(const YamlNode& node, const std::string& what, const ReadContext& context,
              const std::function<void(const YamlNode&)>& read_item) {
  if (node.kind != YamlNode::Kind::kList) {
    Accept(Expected(what, node), node, context);
    return;
  }
  for (const YamlNode& item : node.items) read_item(item);
}

}  // namespace

Key& Key::For(Names choices) {
  only_for = std::move(choices);
  return *this;
}

Key& Key::ForSecond(Names second_choices) {
  only_for_second = std::move(second_choices);
  return *this;
}

Key& Key::Required() {
  required = true;
  return *this;
}

Key& Key::RequiredFor(Names choices) {
  required_for = std::move(choices);
  return *this;
}

Key& Key::Default(std::string words) {
  default_text = std::move(words);
  return *this;
}

Key& Key::WrittenIf(std::function<bool()> given) {
  unused = [given = std::move(given)] { return !given(); };
  return *this;
}

// Where a key takes other maps beside, a value is told by the key that its table requires.
bool Key::TakesWhole(const YamlNode& map) const {
  using Kind = ValueSchema::Kind;
  if (map.kind != YamlNode::Kind::kMap) return false;
  const auto is_value = [](const ValueSchema& schema) {
    return schema.kind == Kind::kMap && schema.section()->is_value;
  };
  const bool alone = std::all_of(schemas.begin(), schemas.end(), [&](const ValueSchema& schema) {
    return schema.kind != Kind::kMap || is_value(schema);
  });
  return std::any_of(schemas.begin(), schemas.end(), [&](const ValueSchema& schema) {
    return is_value(schema) && (alone || map.Find(schema.marker) != nullptr);
  });
}

Key& Key::Fits(std::string pattern) {
  schemas = {TextSchema(std::move(pattern))};
  return *this;
}

Key MakeKey(std::string name, std::string type, std::string meaning) {
  Key key;
  key.name = std::move(name);
  key.type = std::move(type);
  key.meaning = std::move(meaning);
  return key;
}

Key IntegerKey(std::string name, SetInteger set, std::function<std::optional<long long>()> get,
               const Range& range, std::string meaning) {
  Key key = MakeKey(std::move(name), "integer", std::move(meaning));
  key.schemas = {IntegerSchema(range)};
  key.range = range.Text();
  key.read = [set = std::move(set), range](const YamlNode& node, const ReadContext& context) {
    long long value = 0;
    if (Accept(ReadInteger(node, range, value), node, context)) set(value);
  };
  key.write = [get = std::move(get)]() -> std::optional<YamlNode> {
    const auto value = get();
    return value ? std::optional(Scalar(std::to_string(*value))) : std::nullopt;
  };
  return key;
}

Key NumberKey(std::string name, std::function<void(double)> set,
              std::function<std::optional<double>()> get, const Range& range, std::string meaning) {
  Key key = MakeKey(std::move(name), "number", std::move(meaning));
  key.schemas = {NumberSchema(range)};
  key.range = range.Text();
  key.read = [set = std::move(set), range](const YamlNode& node, const ReadContext& context) {
    double value = 0;
    if (Accept(ReadNumber(node, range, value), node, context)) set(value);
  };
  key.write = [get = std::move(get)]() -> std::optional<YamlNode> {
    const auto value = get();
    return value ? std::optional(Scalar(NumberText(*value))) : std::nullopt;
  };
  return key;
}

Key SwitchKey(std::string name, std::function<void(bool)> set,
              std::function<std::optional<bool>()> get, std::string meaning) {
  Key key = MakeKey(std::move(name), "boolean", std::move(meaning));
  key.schemas = {SwitchSchema()};
  key.range = "true, false";
  key.read = [set = std::move(set)](const YamlNode& node, const ReadContext& context) {
    bool value = false;
    if (Accept(ReadSwitch(node, value), node, context)) set(value);
  };
  key.write = [get = std::move(get)]() -> std::optional<YamlNode> {
    const auto value = get();
    return value ? std::optional(Scalar(*value ? "true" : "false")) : std::nullopt;
  };
  return key;
}

Key WordKey(std::string name, Names words, std::function<void(std::size_t)> set,
            std::function<std::optional<std::size_t>()> get, std::string meaning) {
  Key key = MakeKey(std::move(name), "word", std::move(meaning));
  key.schemas = {WordSchema(words)};
  key.range = JoinNames(words);
  key.write = [words, get = std::move(get)]() -> std::optional<YamlNode> {
    const auto index = get();
    return index ? std::optional(Scalar(words[*index])) : std::nullopt;
  };
  key.read = [words = std::move(words), set = std::move(set)](const YamlNode& node,
                                                              const ReadContext& context) {
    const auto index = ReadWord(node, words, context);
    if (index) set(*index);
  };
  return key;
}

// `refuse` gets a copy that it may change; the field takes what it made of it.
Key Text(std::string name, std::string& field, std::string meaning, RefuseText refuse) {
  Key key = MakeKey(std::move(name), "text", std::move(meaning));
  key.schemas = {TextSchema("")};
  key.read = [&field, refuse = std::move(refuse)](const YamlNode& node,
                                                  const ReadContext& context) {
    std::string text;
    if (!Accept(ReadText(node, text), node, context)) return;
    if (refuse && !Accept(refuse(text), node, context)) return;
    field = text;
  };
  key.write = [&field]() -> std::optional<YamlNode> {
    return field.empty() ? std::nullopt : std::optional(TextNode(field));
  };
  return key;
}

Key WordText(std::string name, std::string& field, const Names& words, std::string meaning) {
  return WordKey(
      std::move(name), words, [&field, words](std::size_t index) { field = words[index]; },
      [&field, words]() -> std::optional<std::size_t> {
        const auto found = std::find(words.begin(), words.end(), field);
        if (found == words.end()) return std::nullopt;
        return static_cast<std::size_t>(found - words.begin());
      },
      std::move(meaning));
}

Key Pair(std::string name, std::array<int, 2>& field, const Range& range, std::string meaning) {
  Key key = MakeKey(std::move(name), "integer or [height, width]", std::move(meaning));
  key.schemas = {IntegerSchema(range), ListSchema({IntegerSchema(range)}, 2)};
  key.schemas.back().most = 2;
  key.range = range.Text();
  key.read = [&field, range](const YamlNode& node, const ReadContext& context) {
    const bool pair = node.kind == YamlNode::Kind::kList;
    if (pair && node.items.size() != 2) {
      const std::string count = std::to_string(node.items.size());
      Accept("expected [height, width]; got a list of " + count, node, context);
      return;
    }
    // One number fills both places: the same node is read twice.
    for (std::size_t i = 0; i < 2; ++i) {
      const YamlNode& item = pair ? node.items[i] : node;
      long long value = 0;
      if (!Accept(ReadInteger(item, range, value), item, context)) return;
      field[i] = static_cast<int>(value);
    }
  };
  key.write = [&field]() -> std::optional<YamlNode> {
    if (field[0] == field[1]) return Scalar(std::to_string(field[0]));
    return List({Scalar(std::to_string(field[0])), Scalar(std::to_string(field[1]))});
  };
  return key;
}

Key IntegerList(std::string name, std::vector<int>& field, const Range& range,
                std::string meaning) {
  Key key = MakeKey(std::move(name), "list of integers", std::move(meaning));
  key.schemas = {ListSchema({IntegerSchema(range)})};
  key.range = range.Text();
  key.read = [&field, range](const YamlNode& node, const ReadContext& context) {
    std::vector<int> values;
    ReadList(node, "a list of whole numbers", context, [&](const YamlNode& item) {
      long long value = 0;
      if (Accept(ReadInteger(item, range, value), item, context)) {
        values.push_back(static_cast<int>(value));
      }
    });
    field = values;
  };
  key.write = [&field]() -> std::optional<YamlNode> {
    std::vector<YamlNode> items;
    for (int value : field) items.push_back(Scalar(std::to_string(value)));
    return List(std::move(items));
  };
  return key;
}

Key NumberList(std::string name, std::vector<double>& field, const Range& range,
               std::string meaning) {
  Key key = MakeKey(std::move(name), "list of numbers", std::move(meaning));
  key.schemas = {ListSchema({NumberSchema(range)})};
  key.range = range.Text();
  key.read = [&field, range](const YamlNode& node, const ReadContext& context) {
    std::vector<double> values;
    ReadList(node, "a list of numbers", context, [&](const YamlNode& item) {
      double value = 0;
      if (Accept(ReadNumber(item, range, value), item, context)) values.push_back(value);
    });
    field = values;
  };
  key.write = [&field]() -> std::optional<YamlNode> {
    std::vector<YamlNode> items;
    for (double value : field) items.push_back(Scalar(NumberText(value)));
    return List(std::move(items));
  };
  return key;
}

Key TextList(std::string name, std::vector<std::string>& field, Names words, std::string meaning) {
  const char* type = words.empty() ? "list of texts" : "list of words";
  Key key = MakeKey(std::move(name), type, std::move(meaning));
  key.schemas = {ListSchema({words.empty() ? TextSchema("") : WordSchema(words)})};
  key.schemas.front().distinct = true;
  key.range = JoinNames(words);
  key.read = [&field, words = std::move(words)](const YamlNode& node, const ReadContext& context) {
    std::vector<std::string> values;
    std::set<std::string> known;
    const std::string what = words.empty() ? "a list of texts" : "a list of " + JoinNames(words);
    ReadList(node, what, context, [&](const YamlNode& item) {
      std::string text;
      if (words.empty() ? !Accept(ReadText(item, text), item, context)
                        : !ReadWord(item, words, context)) {
        return;
      }
      text = item.text;
      // The text is kept all the same: its place in the list stays that of the node, on which
      // PlacedTexts and messages about single items rely.
      if (!known.insert(text).second) Accept("'" + text + "' stands here twice", item, context);
      values.push_back(text);
    });
    field = values;
  };
  key.write = [&field]() -> std::optional<YamlNode> {
    std::vector<YamlNode> items;
    for (const std::string& value : field) items.push_back(TextNode(value));
    return List(std::move(items));
  };
  return key;
}

Key OfItems(Key key, std::size_t least, std::size_t most, std::string expected) {
  key.schemas.front().least = least;
  key.schemas.front().most = most;
  key.read = [read = std::move(key.read), least, most, expected = std::move(expected)](
                 const YamlNode& node, const ReadContext& context) {
    const std::size_t items = node.items.size();
    if (node.kind == YamlNode::Kind::kList && (items < least || items > most))
      context.problems.Add(node, context.path, expected);
    read(node, context);
  };
  return key;
}

// The places are parallel to the texts, among which no item is that was refused.
Key PlacedTexts(std::string name, std::vector<std::string>& field, std::vector<Location>& places,
                std::string meaning) {
  Key key = TextList(std::move(name), field, {}, std::move(meaning));
  key.read = [&places, read = key.read](const YamlNode& node, const ReadContext& context) {
    read(node, context);
    places.clear();
    for (const YamlNode& item : node.items) {
      std::string text;
      if (ReadText(item, text).empty()) places.push_back(context.problems.Where(item));
    }
  };
  return key;
}

// The first key lends its name and its defaults to both; schemas, type and range are those of
// either, since a schema cannot tell which choice a map makes.
Key ByChoice(Key first, Key second, const std::string& chosen) {
  Key key = first;
  if (second.type != first.type) key.type += " or " + second.type;
  key.meaning += "; " + second.meaning;
  if (second.range != first.range) key.range += (first.range.empty() ? "" : "; ") + second.range;
  key.only_for.insert(key.only_for.end(), second.only_for.begin(), second.only_for.end());
  key.schemas.insert(key.schemas.end(), second.schemas.begin(), second.schemas.end());
  key.read = [first, second](const YamlNode& node, const ReadContext& context) {
    // The section's choice travels in the context, since the field that holds it may be read later
    // than this key.
    (Contains(second.only_for, context.choice) ? second : first).read(node, context);
  };
  key.write = [first, second, &chosen] {
    return (Contains(second.only_for, chosen) ? second : first).write();
  };
  return key;
}

// The section is read into fields that it is bound to already, so there is no `set`.
Key Nested(std::string name, Section section, std::string meaning) {
  Key key = MakeKey(std::move(name), "map", std::move(meaning));
  key.default_text = "{}";
  key.section = std::make_shared<Section>(std::move(section));
  key.schemas = {MapSchema([inner = key.section] { return inner; })};
  key.read = [inner = key.section](const YamlNode& node, const ReadContext& context) {
    ReadSection(node, *inner, context);
  };
  key.write = [inner = key.section]() -> std::optional<YamlNode> { return WriteSection(*inner); };
  return key;
}

}  // namespace ada::config

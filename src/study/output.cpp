// What was counted of a run as JSON; elements of pictures, and the head and the style of pages.
#include "study/output.h"

#include "io/shown_text.h"
#include "io/text.h"

namespace ada::study {
namespace {

constexpr char kStyle[] =
    "body{font:15px/1.45 system-ui,sans-serif;max-width:900px;margin:2em auto;padding:0 1em;"
    "color:#222}\n"
    "table{border-collapse:collapse;width:100%}td,th{padding:.25em .5em;text-align:right;"
    "border-bottom:1px solid #ddd}\n"
    "td,th{white-space:nowrap}td:last-child{white-space:normal}\n"
    "td:first-child,th:first-child,td:last-child,th:last-child{text-align:left}\n"
    "tr.taken td{background:#e8f3ea}.verdict{font-size:1.15em;border-left:4px solid #009e73;"
    "padding-left:.8em}\n"
    "svg{width:100%;height:auto}svg text{font-size:12px;fill:#333}\n";

}  // namespace

OrderedJson LostJson(const telemetry::LayerTotals& layers, const telemetry::Coverage& coverage) {
  OrderedJson json;
  json["text"] = telemetry::LostText(layers, coverage);
  json["counted"] = coverage.counted;
  json["not_counted"] = coverage.uncounted;
  json["logged_steps"] = coverage.logged_steps;
  json["steps"] = coverage.steps;
  json["most"] = OrderedJson();
  if (const telemetry::TensorTotals* most = telemetry::LostMost(layers))
    json["most"] = {{"tensor", most->name()},
                    {"format", most->last_format},
                    {"scale", most->last_scale},
                    {"mean_pct", most->lost_mean()},
                    {"max_pct", most->lost_max}};
  return json;
}

std::string Html(const std::string& text) {
  std::string safe;
  for (const char c : Visible(text))
    safe += c == '<'   ? "&lt;"
            : c == '>' ? "&gt;"
            : c == '&' ? "&amp;"
            : c == '"' ? "&quot;"
                       : std::string(1, c);
  return safe;
}

SvgNumber::SvgNumber(int value) : text(std::to_string(value)) {}
SvgNumber::SvgNumber(double value) : text(Formatted("%.1f", value)) {}

std::string SvgRect(SvgNumber x, SvgNumber y, SvgNumber width, SvgNumber height,
                    const std::string& fill, const std::string& title, const std::string& more) {
  return "<rect x=\"" + x.text + "\" y=\"" + y.text + "\" width=\"" + width.text + "\" height=\"" +
         height.text + "\" fill=\"" + fill + "\"" + more +
         (title.empty() ? "/>" : "><title>" + Html(title) + "</title></rect>");
}

std::string SvgBand(SvgNumber x, SvgNumber y, SvgNumber width, SvgNumber height,
                    const std::string& title) {
  return SvgRect(x, y, width, height, "#ddd", title, " fill-opacity=\"0.6\"");
}

std::string SvgLine(SvgNumber x1, SvgNumber y1, SvgNumber x2, SvgNumber y2,
                    const std::string& stroke) {
  return "<line x1=\"" + x1.text + "\" y1=\"" + y1.text + "\" x2=\"" + x2.text + "\" y2=\"" +
         y2.text + "\" stroke=\"" + stroke + "\"/>";
}

std::string SvgText(SvgNumber x, SvgNumber y, const std::string& text, const std::string& anchor) {
  return "<text x=\"" + x.text + "\" y=\"" + y.text + "\"" +
         (anchor.empty() ? "" : " text-anchor=\"" + anchor + "\"") + ">" + Html(text) + "</text>";
}

std::string PageHead(const std::string& title, const std::string& heading) {
  return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>" + Html(title) +
         "</title>\n<style>\n" + kStyle + "</style></head><body>\n<h1>" + Html(heading) + "</h1>\n";
}

}  // namespace ada::study

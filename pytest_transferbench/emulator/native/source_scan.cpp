#include "source_scan.hpp"

#include <algorithm>
#include <cctype>
#include <set>

namespace emulator {
namespace {

const char* const KERNEL = "__transferbench_kernel__";
const char* const SHARED = "__transferbench_shared__";

struct Token {
  size_t at;
  std::string text;
};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Where the literal that begins at `at` with a quote ends.
size_t end_of_literal(const std::string& text, size_t at) {
  const char quote = text[at];
  for (++at; at < text.size() && text[at] != quote; ++at) {
    if (text[at] == '\\') ++at;
  }
  return at + 1;
}

size_t end_of_raw_string(const std::string& text, size_t quote) {
  const size_t open = text.find('(', quote);
  const std::string close = ")" + text.substr(quote + 1, open - quote - 1) + "\"";
  const size_t end = text.find(close, open);
  return end == std::string::npos ? text.size() : end + close.size();
}

// Words, literals and single characters; line markers and white space are left out.
std::vector<Token> tokenize(const std::string& text) {
  std::vector<Token> tokens;
  bool line_begins = true;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '\n') {
      line_begins = true;
      ++at;
    } else if (std::isspace(static_cast<unsigned char>(c))) {
      ++at;
    } else if (c == '#' && line_begins) {
      at = std::min(text.find('\n', at), text.size());
    } else {
      line_begins = false;
      size_t end = at + 1;
      if (is_word(c)) {
        while (end < text.size() && is_word(text[end])) ++end;
        const bool raw = end < text.size() && text[end] == '"' && text[end - 1] == 'R';
        if (raw) end = end_of_raw_string(text, end);
        else if (std::isdigit(static_cast<unsigned char>(c))) {
          while (end < text.size() && (is_word(text[end]) || text[end] == '\'' || text[end] == '.')) ++end;
        }
      } else if (c == '"' || c == '\'') {
        end = end_of_literal(text, at);
      }
      tokens.push_back({at, text.substr(at, end - at)});
      at = end;
    }
  }
  return tokens;
}

struct Scope {
  bool open;         // a namespace or a linkage specification: declarations inside can be named from outside
  std::string path;  // with "::" at its end
};

// What the brace at `brace` opens.
Scope scope_of(const std::vector<Token>& tokens, size_t brace, const Scope& outer) {
  if (brace >= 2 && tokens[brace - 2].text == "extern") return outer;  // extern "C" {
  size_t name = brace;
  std::string path;
  while (name > 0) {
    const std::string& text = tokens[name - 1].text;
    if (text == "namespace") return {outer.open, outer.path + (path.empty() ? "" : path + "::")};
    if (text != ":" && !is_word(text[0])) break;
    path = text + path;
    --name;
  }
  return {false, ""};
}

// The name of the function whose declaration holds the kernel marker at `marker`; empty when there is none.
std::string function_name(const std::vector<Token>& tokens, size_t marker) {
  for (size_t i = marker + 1; i + 1 < tokens.size(); ++i) {
    const std::string& text = tokens[i].text;
    if (text == ";" || text == "{") return "";
    if (tokens[i + 1].text != "(" || !is_word(text[0])) continue;
    if (text != "__attribute__" && text != "alignas") return text;
    int depth = 0;  // step over the attribute
    do {
      ++i;
      depth += tokens[i].text == "(";
      depth -= tokens[i].text == ")";
    } while (depth && i + 1 < tokens.size());
  }
  return "";
}

}  // namespace

ScannedSource scan(const std::string& preprocessed) {
  const std::vector<Token> tokens = tokenize(preprocessed);
  ScannedSource result;
  std::vector<Scope> scopes{{true, ""}};
  std::set<std::string> known;
  bool in_template = false;
  size_t copied = 0;
  auto replace = [&](size_t at, size_t length, const std::string& by) {
    result.text.append(preprocessed, copied, at - copied);
    result.text += by;
    copied = at + length;
  };
  bool label_next_array = false;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string& text = tokens[i].text;
    if (text == "{") {
      scopes.push_back(scope_of(tokens, i, scopes.back()));
    } else if (text == "}" && scopes.size() > 1) {
      scopes.pop_back();
    }
    if (text == ";" || text == "{" || text == "}") in_template = false;
    if (text == "template") in_template = true;
    if (text == SHARED) {
      const bool dynamic = i > 0 && tokens[i - 1].text == "extern";
      replace(tokens[i].at, text.size(), dynamic ? "__thread" : "static __thread");
      label_next_array = dynamic;
      result.dynamic_shared |= dynamic;
    } else if (label_next_array && text == "]") {
      replace(tokens[i].at, 1, "] __asm__(\"transferbench_dynamic_shared\")");
      label_next_array = false;
    } else if (text == KERNEL) {
      replace(tokens[i].at, text.size(), "");
      const std::string name = function_name(tokens, i);
      if (in_template || name.empty() || !scopes.back().open) continue;
      const std::string expression = scopes.back().path + name;
      if (known.insert(expression).second) result.kernels.push_back({name, expression});
    }
  }
  result.text.append(preprocessed, copied, std::string::npos);
  return result;
}

std::string kernel_table(const ScannedSource& source, const std::string& arch) {
  std::string table = "\n# 1 \"kernel table\"\n";
  if (source.dynamic_shared) {
    table += "__attribute__((aligned(128), visibility(\"hidden\"))) __thread char transferbench_dynamic_shared_memory"
             "[65536] __asm__(\"transferbench_dynamic_shared\");\n";
  }
  table += "extern \"C\" const char transferbench_kernels_arch[] = \"" + arch + "\";\n";
  table += "extern \"C\" const transferbench::entry transferbench_kernels[] = {\n";
  for (const ScannedSource::Kernel& kernel : source.kernels) {
    table += "  transferbench::describe(\"" + kernel.name + "\", &" + kernel.expression + "),\n";
  }
  return table + "  {0, 0, 0, 0, 0}};\n";
}

}  // namespace emulator

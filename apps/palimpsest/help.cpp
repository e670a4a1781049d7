#include "palimpsest/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "palimpsest/command_line.h"

namespace palimpsest::cli {

std::string help_row(const std::string& left, const std::string& right) {
  constexpr std::size_t kColumn = 30, kWidth = 100;
  std::string out = "  " + left;
  if (out.size() + 2 > kColumn) out += "\n";
  std::size_t column = out.size() + 2 > kColumn ? 0 : out.size();
  out.append(kColumn - column, ' ');
  column = kColumn;
  std::istringstream words(right);
  for (std::string word; words >> word;) {
    if (column > kColumn && column + 1 + word.size() > kWidth) {
      out += "\n" + std::string(kColumn, ' ');
      column = kColumn;
    }
    if (column > kColumn) out += ' ', ++column;
    out += word;
    column += word.size();
  }
  while (out.back() == ' ') out.pop_back();
  return out + "\n";
}

namespace {

// CLI11's type name without the names of its checks ("N:NONNEGATIVE").
std::string value_name(const CLI::Option& option) {
  std::string name = option.get_type_name();
  name = name.substr(0, name.find(':'));
  return name == "INT" || name == "UINT" ? "N" : name == "FLOAT" ? "X" : name;
}

std::string names(const CLI::Option& option) {
  std::string out;
  for (const std::string& each : option.get_snames()) out += (out.empty() ? "-" : ", -") + each;
  for (const ShortName& each : kShortNames)
    if (option.check_lname(each.name + 2)) out += (out.empty() ? "" : ", ") + std::string(each.given);
  if (out.empty()) out = "  ";
  for (const std::string& each : option.get_lnames()) out += (out == "  " ? "  --" : ", --") + each;
  const bool flag = option.get_items_expected_max() == 0;
  return flag ? out : out + " " + value_name(option);
}

std::string description(const CLI::Option& option) {
  std::string out = option.get_description();
  const bool flag = option.get_items_expected_max() == 0;
  if (!flag && !option.get_default_str().empty()) out += fmt::format(" (default: {})", option.get_default_str());
  return out;
}

}  // namespace

std::string HelpFormat::make_help(const CLI::App* app, std::string name, CLI::AppFormatMode) const {
  const auto subcommands = app->get_subcommands([](const CLI::App* each) { return !each->get_group().empty(); });
  const auto positionals = app->get_options([](const CLI::Option* each) { return each->nonpositional() == false; });

  if (app->get_parent() != nullptr && name.find(' ') == std::string::npos)
    for (const CLI::App* up = app->get_parent(); up != nullptr; up = up->get_parent())
      name = up->get_name() + " " + name;
  std::string out = app->get_description() + "\n\nUsage: " + name;
  if (!subcommands.empty()) out += " COMMAND";
  for (const CLI::Option* each : positionals)
    out += each->get_required() ? " " + value_name(*each) : " [" + value_name(*each) + "]";
  out += " [options]\n";

  if (!subcommands.empty()) {
    out += "\nCommands\n";
    for (const CLI::App* each : subcommands) out += help_row(each->get_name(), each->get_description());
  }
  if (!positionals.empty()) {
    out += "\nArguments\n";
    for (const CLI::Option* each : positionals) out += help_row(value_name(*each), description(*each));
  }
  std::vector<std::string> groups = app->get_groups();
  const std::string common = app->get_help_ptr()->get_group();  // the group of --help is printed last
  std::stable_partition(groups.begin(), groups.end(), [&](const std::string& each) { return each != common; });
  for (const std::string& group : groups) {
    const auto options =
        app->get_options([&](const CLI::Option* each) { return each->get_group() == group && each->nonpositional(); });
    if (group.empty() || options.empty()) continue;
    out += "\n" + (group == common ? "Help" : group) + "\n";
    for (const CLI::Option* each : options) out += help_row(names(*each), description(*each));
  }
  if (!app->get_footer().empty()) out += "\n" + app->get_footer() + "\n";
  return out;
}

}  // namespace palimpsest::cli

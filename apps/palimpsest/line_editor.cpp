#include "palimpsest/line_editor.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string_view>

#include "palimpsest/core/error.h"
#include "palimpsest/interrupt.h"

#ifdef PALIMPSEST_LIBEDIT
#include <histedit.h>

#include <clocale>
#include <cstdlib>
#include <filesystem>
#include <utility>
#endif

namespace palimpsest::cli {
namespace {

// A byte of standard input; -1: the end, -2: interrupted. Polls with a timeout: without it, a signal just before the
// system call would be seen only after the next byte.
class Input {
 public:
  int next() {
    if (at_ < size_) return bytes_[at_++];
    while (true) {
      pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
      while (!interrupted() && poll(&input, 1, 200) == 0) continue;
      if (interrupted()) return -2;
      const ssize_t n = ::read(STDIN_FILENO, bytes_, sizeof bytes_);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail("standard input cannot be read (error {})", errno);
      if (n == 0) return -1;
      size_ = static_cast<std::size_t>(n);
      at_ = 0;
      return bytes_[at_++];
    }
  }

 private:
  unsigned char bytes_[4096];
  std::size_t at_ = 0, size_ = 0;
};

LineEditor::Result read_line(Input& input, std::string& line) {
  line.clear();
  while (true) {
    const int c = input.next();
    if (c == -2) return LineEditor::kInterruption;
    if (c == -1) return line.empty() ? LineEditor::kEnd : LineEditor::kLine;
    if (c == '\n') return LineEditor::kLine;
    line += static_cast<char>(c);
  }
}

}  // namespace

#ifdef PALIMPSEST_LIBEDIT

namespace {

// Messages of earlier chats; "": they are not kept.
std::string history_path() {
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::filesystem::path(value == nullptr ? "" : value);
  };
  std::filesystem::path folder = variable("XDG_STATE_HOME");
  if (folder.empty() && !variable("HOME").empty()) folder = variable("HOME") / ".local" / "state";
  if (folder.empty()) return {};
  folder /= "palimpsest";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  return error ? std::string() : (folder / "chat-history").string();
}

}  // namespace

struct LineEditor::Impl {
  Impl() {
    if (!terminal || isatty(STDOUT_FILENO) == 0) return;
    // libedit reads and writes characters of the locale; ours are UTF-8.
    if (std::setlocale(LC_CTYPE, "") == nullptr || MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
    edit = el_init("palimpsest", stdin, stdout, stderr);
    if (edit == nullptr) return;
    history = history_init();
    HistEvent event;
    ::history(history, &event, H_SETSIZE, 1000);
    ::history(history, &event, H_SETUNIQUE, 1);
    if (!history_file.empty()) ::history(history, &event, H_LOAD, history_file.c_str());
    el_set(edit, EL_CLIENTDATA, this);
    el_set(edit, EL_EDITOR, "emacs");
    el_set(edit, EL_SIGNAL, 0);
    el_set(edit, EL_HIST, ::history, history);
    el_set(edit, EL_PROMPT, &prompt);
    el_set(edit, EL_GETCFN, &next_character);
    el_set(edit, EL_ADDFN, "paste", "inserts what was pasted", &paste);
    el_set(edit, EL_ADDFN, "new-line", "begins a line", &new_line);
    el_set(edit, EL_BIND, "\\e[200~", "paste", nullptr);
    for (const char* const keys : {"\\e^M", "\\e^J"}) el_set(edit, EL_BIND, keys, "new-line", nullptr);
    el_set(edit, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  }
  ~Impl() {
    if (edit == nullptr) return;
    HistEvent event;
    if (!history_file.empty()) ::history(history, &event, H_SAVE, history_file.c_str());
    history_end(history);
    el_end(edit);
  }

  Result next(std::string& message, const std::string& begin) {
    bracketed_paste(true);
    if (!begin.empty()) el_push(edit, ("\x1B[200~" + begin + "\x1B[201~").c_str());  // as if it were pasted
    int count = 0;
    const char* const text = el_gets(edit, &count);
    bracketed_paste(false);
    if (!failure.empty()) fail("{}", std::exchange(failure, {}));
    if (interrupted()) {
      el_reset(edit);
      return kInterruption;
    }
    if (text == nullptr || count <= 0) return kEnd;
    message.assign(text, static_cast<std::size_t>(count));
    while (!message.empty() && message.back() == '\n') message.pop_back();
    HistEvent event;
    if (!message.empty()) ::history(history, &event, H_ENTER, message.c_str());
    return kLine;
  }

  static void bracketed_paste(bool on) {
    std::fputs(on ? "\x1B[?2004h" : "\x1B[?2004l", stdout);
    std::fflush(stdout);
  }
  static char* prompt(EditLine*) {
    static char text[] = "> ";
    return text;
  }
  // 1: a character; 0: the end; -1: interrupted.
  static int next_character(EditLine* edit, wchar_t* character) {
    void* data = nullptr;
    el_get(edit, EL_CLIENTDATA, &data);
    Impl& self = *static_cast<Impl*>(data);
    try {
      const int first = self.input.next();
      if (first < 0) return first == -1 ? 0 : -1;
      const int more = first < 0xC0 ? 0 : first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
      unsigned long code = more == 0 ? static_cast<unsigned>(first) : static_cast<unsigned>(first) & (0x3FU >> more);
      for (int i = 0; i < more; ++i) {
        const int c = self.input.next();
        if (c < 0) return -1;
        code = code << 6 | (static_cast<unsigned>(c) & 0x3FU);
      }
      *character = static_cast<wchar_t>(code);
      return 1;
    } catch (const std::exception& e) {  // not through libedit, which is in C
      self.failure = e.what();
      return -1;
    }
  }
  // What the terminal sends between the marks of a paste: lines do not end the message.
  static unsigned char paste(EditLine* edit, wint_t) {
    constexpr std::wstring_view kEndMark = L"\x1B[201~";
    std::wstring text;
    wchar_t c = 0;
    while (!text.ends_with(kEndMark) && el_wgetc(edit, &c) == 1) text += c == L'\r' ? L'\n' : c;
    if (text.ends_with(kEndMark)) text.resize(text.size() - kEndMark.size());
    std::erase_if(text, [](wchar_t each) { return each < L' ' && each != L'\n' && each != L'\t'; });
    while (!text.empty() && text.back() == L'\n') text.pop_back();
    if (!text.empty() && el_winsertstr(edit, text.c_str()) != 0) return CC_ERROR;
    return CC_REFRESH;
  }
  static unsigned char new_line(EditLine* edit, wint_t) {
    return el_winsertstr(edit, L"\n") == 0 ? CC_REFRESH : CC_ERROR;
  }

  const bool terminal = isatty(STDIN_FILENO) == 1;
  const std::string history_file = history_path();
  Input input;
  std::string failure;
  EditLine* edit = nullptr;  // nullptr: lines are read without editing
  History* history = nullptr;
};

bool LineEditor::edits() const {
  return impl_->edit != nullptr;
}

const char* LineEditor::keys() {
  return "Up and Down: history. Ctrl-R: search it. Alt-Enter: new line; pasted lines stay one message.";
}

LineEditor::Result LineEditor::next(std::string& message, const std::string& begin) {
  return edits() ? impl_->next(message, begin) : read_line(impl_->input, message);
}

#else

struct LineEditor::Impl {
  const bool terminal = isatty(STDIN_FILENO) == 1;
  Input input;
};

bool LineEditor::edits() const {
  return false;
}

const char* LineEditor::keys() {
  return "";
}

LineEditor::Result LineEditor::next(std::string& message, const std::string&) {
  return read_line(impl_->input, message);
}

#endif

LineEditor::LineEditor() : impl_(std::make_unique<Impl>()) {}
LineEditor::~LineEditor() = default;

bool LineEditor::terminal() const {
  return impl_->terminal;
}

}  // namespace palimpsest::cli

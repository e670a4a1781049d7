// The HTTP server in a thread of this process.
#include "palimpsest/server/server.h"

#include <filesystem>
#include <thread>

#include "binding.h"
#include "palimpsest/text/sampler_fields.h"

namespace palimpsest::python {
namespace {

class PyServer {
 public:
  PyServer(const PyModel& model, const std::string& method, const std::string& key_type, const std::string& value_type,
           int chunk, int page_size, ServerOptions options, const SchedulerOptions& given, const std::string& name,
           const std::string& source, const std::string& session_path, bool shared_sessions, bool special_in_messages) {
    const SessionOptions session = model.options(method, key_type, value_type, chunk, page_size);
    SchedulerOptions scheduler = given;
    scheduler.cache_type = session.cache_type;
    scheduler.profile_file = session.profile_file;
    scheduler.chunk = chunk;
    scheduler.page_size = page_size;
    scheduler.prefix_bytes = scheduler.pool_bytes / 2;
    const std::shared_ptr<Decoder> decoder = model.decoder();
    const bool templates = !source.empty() || model.vocabulary->has_chat_template();
    ServedModel served{
        .vocabulary = model.vocabulary,
        .name = name.empty() ? std::filesystem::path(model.model->path()).stem().string() : name,
        .chat_template = templates ? ChatTemplate::load(model.vocabulary, source, special_in_messages) : nullptr,
        .method = MethodPlan(session.method, plan_target(*decoder, session)).method(),
        .sampling = recommended_sampling(*model.vocabulary)};
    auto sessions = session_path.empty() ? nullptr
                                         : std::make_unique<SessionFolders>(session_path, std::size_t{1} << 30,
                                                                            options.api_keys, shared_sessions);
    server_ = std::make_unique<Server>(
        std::make_shared<Service>(decoder, std::move(served), scheduler, std::move(sessions)), options);
    port_ = server_->bind();
    thread_ = std::thread([this] { server_->run(); });
  }
  ~PyServer() {  // called with the GIL, which a policy written in Python may be waiting for
    const nb::gil_scoped_release released;
    stop();
  }
  void stop() {
    if (!thread_.joinable()) return;
    server_->shut_down();
    thread_.join();
    server_.reset();
  }
  int port() const { return port_; }

 private:
  std::unique_ptr<Server> server_;
  std::thread thread_;
  int port_ = 0;
};

}  // namespace

void bind_server(nb::module_& m) {
  nb::class_<PyServer>(m, "Server")
      .def(
          "__init__",
          [](PyServer* self, const PyModel& model, const std::string& method, const std::string& key_type,
             const std::string& value_type, int chunk, int page_size, const std::string& host, int port,
             const std::vector<std::string>& api_keys, std::size_t cache_mib, int max_sequences,
             const std::string& name, const std::string& chat_template, const std::string& session_path,
             bool shared_sessions, bool special_in_messages) {
            const nb::gil_scoped_release released;
            ServerOptions options;
            options.host = host;
            options.port = port;
            options.api_keys = api_keys;
            options.quiet = true;
            SchedulerOptions scheduler;
            scheduler.pool_bytes = cache_mib << 20;
            scheduler.max_sequences = max_sequences;
            new (self) PyServer(model, method, key_type, value_type, chunk, page_size, options, scheduler, name,
                                chat_template, session_path, shared_sessions, special_in_messages);
          },
          nb::arg("model"), nb::arg("method"), nb::arg("key_type"), nb::arg("value_type"), nb::arg("chunk"),
          nb::arg("page_size"), nb::arg("host"), nb::arg("port"), nb::arg("api_keys"), nb::arg("cache_mib"),
          nb::arg("max_sequences"), nb::arg("name"), nb::arg("chat_template"), nb::arg("session_path"),
          nb::arg("shared_sessions"), nb::arg("special_in_messages"))
      .def("stop", &PyServer::stop, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("port", &PyServer::port);
}

}  // namespace palimpsest::python

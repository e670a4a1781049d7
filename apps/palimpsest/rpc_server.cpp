// palimpsest rpc-server: lends this machine's devices to another one, with ggml's RPC server.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

#include "palimpsest/commands.h"
#include "palimpsest/core/cpu_count.h"
#include "palimpsest/core/error.h"
#include "palimpsest/model/rpc.h"
#include "palimpsest/options.h"

namespace palimpsest::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  palimpsest rpc-server                                 on 127.0.0.1:50052
  palimpsest rpc-server --device CUDA0 --port 50053
  ssh -N -L 50052:127.0.0.1:50052 other-machine         a tunnel to a server on another machine
  palimpsest run -m model.gguf --rpc 127.0.0.1:50052

The server is ggml's. It serves one client at a time, without authentication or encryption: whoever
reaches the port can run code on this machine. Use loopback with a tunnel, or a private network.)";

int serve(const RpcServerOptions& options) {
  check_rpc_server(options);
  if (!is_loopback(options.host))
    fmt::print(stderr,
               "palimpsest: warning: --host {}: whoever reaches this port can run code on this machine; use a private "
               "network, or 127.0.0.1 with a tunnel\n",
               options.host);
  serve_rpc(options);
}

}  // namespace

void add_rpc_server(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("rpc-server", "Lend this machine's devices to another one (ggml's RPC server)");
  command->footer(kFooter);
  struct Flags {
    RpcServerOptions options;
    std::optional<long long> threads;
  };
  const auto flags = std::make_shared<Flags>();
  command->add_option("--host", flags->options.host, "IPv4 address to listen at")
      ->type_name("ADDRESS")
      ->capture_default_str();
  command->add_option("--port", flags->options.port, "port to listen at")
      ->type_name("PORT")
      ->check(CLI::Range(1, 65535))
      ->capture_default_str();
  command->add_option("--device", flags->options.devices, "devices to lend (see `info --devices`)")
      ->type_name("NAME,...")
      ->default_str("cpu");
  command->add_option("--cache", flags->options.cache, "folder for weights, which clients then send only once")
      ->type_name("FOLDER")
      ->default_str("none");
  command->add_option("-t,--threads", flags->threads, "threads of device cpu")
      ->type_name("N")
      ->check(CLI::Range(1, 512))
      ->default_str("one per core");
  command->callback([&action, flags] {
    action = [flags] {
      flags->options.threads = static_cast<int>(flags->threads.value_or(usable_cpus()));
      return serve(flags->options);
    };
  });
}

}  // namespace palimpsest::cli

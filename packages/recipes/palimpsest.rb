# Installs the archive for Linux, which has its own libraries. The program was not built on macOS.
class Palimpsest < Formula
  desc "Runs GGUF language models with a KV cache of fixed size"
  homepage "@URL@"
  url "@URL@/palimpsest-@VERSION@-linux-x86_64.tar.gz"
  version "@VERSION@"
  sha256 "@SHA256@"
  license "MIT"
  depends_on arch: :x86_64
  depends_on :linux

  def install
    libexec.install Dir["*"]
    bin.install_symlink libexec/"bin/palimpsest"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/palimpsest --version")
    assert_match "\"tokens\": 5", shell_output("#{bin}/palimpsest run -n 5 --ignore-eos --json")
  end
end

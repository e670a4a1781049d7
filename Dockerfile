# A minimal image of the server: the command, its libraries, the default model; a user without rights; no compiler.
#   docker build -t palimpsest .
#   docker run --rm --read-only -p 8080:8080 palimpsest
#   docker run --rm --read-only -p 8080:8080 -v $PWD/models:/models:ro palimpsest serve --host 0.0.0.0 -m /models/model.gguf
#   docker run --rm palimpsest methods
FROM debian:forky AS build
WORKDIR /palimpsest
COPY tools/setup/packages.list /tmp/
RUN apt-get update \
 && sed 's/#.*//' /tmp/packages.list | xargs apt-get install -y --no-install-recommends make python3-pip dpkg-dev file
COPY . .
ENV PALIMPSEST_ROUTE=installed
RUN PALIMPSEST_CMAKE_ARGS=-DPALIMPSEST_ROOT= tools/build package && cd build-package && ../tools/env cpack -G DEB

FROM debian:forky-slim
COPY --from=build /palimpsest/build-package/palimpsest_*.deb /tmp/
COPY packages/container/install.sh packages/container/healthy.sh /tmp/
RUN /tmp/install.sh /tmp/palimpsest_*.deb /tmp/healthy.sh
ENV PALIMPSEST_MODELS=/models
USER 10001:10001
VOLUME ["/models", "/sessions"]
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s CMD ["/usr/lib/palimpsest/healthy.sh"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/bin/palimpsest"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8080", "--session-path", "/sessions"]

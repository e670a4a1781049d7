# An image with the build environment of tools/env's forky route and the program.
#   docker build -t palimpsest . && docker run --rm palimpsest methods
#   docker run --rm -v $PWD/models:/models palimpsest run -m /models/model.gguf
FROM debian:forky
WORKDIR /palimpsest
COPY tools/setup/packages.list /tmp/
RUN apt-get update \
 && sed 's/#.*//' /tmp/packages.list | xargs apt-get install -y --no-install-recommends make python3-pip \
 && rm -rf /var/lib/apt/lists/*
COPY . .
ENV PALIMPSEST_ROUTE=installed
RUN make build
ENTRYPOINT ["/palimpsest/build/palimpsest"]

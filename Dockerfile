# softq with the report and with TVM and a C compiler (zig), to convert, measure and build in any directory:
#   docker build --build-arg VERSION=0.1.0 --tag softq .
#   docker run --rm --user "$(id -u):$(id -g)" --volume "$PWD:/work" softq convert model.onnx out.onnx
# The RUN lines were run in an empty environment of Python 3.11; the image itself was not built where this was written.
FROM python:3.12-slim
ARG VERSION=0.0.0
WORKDIR /src
COPY . .
RUN SETUPTOOLS_SCM_PRETEND_VERSION="$VERSION" python -m pip install --no-cache-dir --disable-pip-version-check --constraint constraints.txt '.[report,tvm]'
RUN softq --version && softq methods > /dev/null
ENV HOME=/tmp
WORKDIR /work
ENTRYPOINT ["softq"]

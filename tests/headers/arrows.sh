#!/bin/sh
# arrows.sh ROOT: holds every #include to the dependency direction of the rooms.
#
#   ir/base <- ir/core <- ir/ops <- ir/strategy <- ir/lang <- ir/verify <- ir/schedule <- ir/exec
#     <- ir/temporal <- ir/passes <- ir/prove, ir/import <- ir/launch, sim/topo, sim/cost <- sim/net <- sim/coll <- sim/plan
#     <- sim/engine <- sim/mem <- sim/run <- sim/report <- search/* <- tools
#   search/space <- search/bound <- search/methods <- search/driver <- search/plot
#
# A private header (internal.h, *_internal.h) is included by files of its own folder and of folders
# inside of it, and by nobody else. Third-party headers stay in their rooms: igraph in sim/topo/*.c,
# SQLite in sim/cost/*.c, GSL in sim/cost, sim/run, search and, CBLAS alone, ir/exec, MPI in
# search/driver/ranks.c, jansson, protobuf-c and expat in ir/import/*.c, jansson in ir/launch/*.c too; none in a header.
# Prints each offence, exits 1 if any.
cd "$1" || exit 2

includes() { # FOLDER PATTERN: file:line:text of the includes that match
    grep -nE "^[[:space:]]*#[[:space:]]*include[[:space:]]+$2" /dev/null "$1"/*.c "$1"/*.h 2>/dev/null
}

private() { # file:line:text of private headers that another folder includes
    grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]+"[^"]*internal\.h"' \
        --include='*.[ch]' ir sim search tools | awk -F: '{
        folder = $1; sub("/[^/]*$", "/", folder)
        home = $3; sub("^[^\"]*\"", "", home); sub("/[^/]*\".*$", "/", home)
        if (index(folder, home) != 1) print
    }'
}

offences=$(
    may() { # FOLDER PREFIX…: FOLDER includes files of the repository from PREFIX only
        folder=$1
        shift
        named="$named $folder"
        allowed=$(echo "$*" | tr ' ' '|')
        includes "$folder" '"' | grep -vE "\"($allowed)/"
    }
    below=ir/base
    may ir/base $below
    for room in core ops strategy lang verify schedule exec temporal passes; do
        below="$below ir/$room"
        # shellcheck disable=SC2086 # one word a room
        for folder in $(find "ir/$room" -type d); do may "$folder" $below; done
    done
    may ir/prove ir
    may ir/import $below ir/import
    may ir/launch $below ir/import ir/launch
    may sim/topo ir sim/topo
    for folder in sim/cost sim/cost/fit; do may "$folder" ir sim/cost; done
    below="ir sim/topo sim/cost"
    for room in net coll plan engine mem run; do
        below="$below sim/$room"
        # shellcheck disable=SC2086
        may "sim/$room" $below
    done
    # shellcheck disable=SC2086
    may sim/report $below sim/report
    below="ir sim"
    for room in compose space bound methods driver plot; do
        below="$below search/$room"
        # shellcheck disable=SC2086
        may "search/$room" $below
    done
    may search/pase ir sim search/pase
    may search/tap ir sim search/pase search/tap
    may search/nn ir/base search/nn
    may search/tag ir sim search/pase search/nn search/tag
    may search/mixed ir/base sim/run search/mixed
    may search/mixed/peers search/mixed

    private
    for folder in $(find ir sim search -name '*.[ch]' | sed 's,/[^/]*$,,' | sort -u); do
        case "$named " in
            *" $folder "*) ;;
            *) echo "$folder: no line of arrows.sh says what the folder may include" ;;
        esac
        [ "$folder" = sim/topo ] || includes "$folder" '<igraph'
        [ "$folder" = sim/cost ] || includes "$folder" '<sqlite3'
        includes "$folder" '<mpi\.h>' | grep -v '^search/driver/ranks\.c:'
        case $folder in
            sim/cost | sim/cost/fit | sim/run | search/*) ;;
            ir/exec) includes "$folder" '<gsl/' | grep -v '<gsl/gsl_cblas\.h>' ;;
            *) includes "$folder" '<gsl/' ;;
        esac
        [ "$folder" = ir/import ] || [ "$folder" = ir/launch ] ||
            includes "$folder" '<(jansson|protobuf-c|onnx|expat)'
        includes "$folder" '<(igraph|sqlite3|gsl|jansson|protobuf-c|onnx|expat|mpi)' | grep -E '^[^:]*\.h:'
    done
)
[ -z "$offences" ] && exit 0
echo "includes against the direction of the rooms:"
echo "$offences"
exit 1

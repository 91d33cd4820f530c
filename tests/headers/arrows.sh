#!/bin/sh
# arrows.sh ROOT: holds every #include to the dependency direction of the rooms.
#
#   ir/base <- ir/core <- ir/ops <- ir/lang <- ir/passes, ir/exec <- ir/import, sim/topo, sim/cost <- sim/* <- search <- tools
#
# and third-party headers to their rooms: igraph in sim/topo/*.c, SQLite and GSL numerics in
# sim/cost/*.c, MPI in search/ranks.c (GSL also in search and, for distributions, in sim/report, its CBLAS in ir/exec/*.c), jansson, protobuf-c and expat in ir/import/*.c,
# none in a header. Prints each offence, exits 1 if any.
cd "$1" || exit 2

includes() { # FOLDER PATTERN: file:line:text of the includes that match
    grep -nE "^[[:space:]]*#[[:space:]]*include[[:space:]]+$2" /dev/null "$1"/*.c "$1"/*.h 2>/dev/null
}

offences=$(
    may() { # FOLDER PREFIX…: FOLDER includes files of the repository from PREFIX only
        folder=$1
        shift
        allowed=$(echo "$*" | tr ' ' '|')
        includes "$folder" '"' | grep -vE "\"($allowed)/"
    }
    may ir/base ir/base
    may ir/core ir/base ir/core
    may ir/ops ir/base ir/core ir/ops
    may ir/lang ir/base ir/core ir/ops ir/lang
    may ir/passes ir
    may ir/exec ir
    may ir/import ir
    may sim/topo ir sim/topo
    may sim/cost ir sim/cost
    for folder in net coll plan engine mem report compose; do may "sim/$folder" ir sim; done
    may search ir sim search
    for folder in search/*/; do may "${folder%/}" ir sim search; done

    for folder in ir/* sim/* search search/*/; do
        folder=${folder%/}
        [ "$folder" = sim/topo ] || includes "$folder" '<igraph'
        [ "$folder" = sim/cost ] || includes "$folder" '<sqlite3'
        includes "$folder" '<mpi\.h>' | grep -v '^search/ranks\.c:'
        case $folder in
            sim/cost | sim/report | search | search/*) ;;
            ir/exec) includes "$folder" '<gsl/' | grep -v '<gsl/gsl_cblas\.h>' ;;
            *) includes "$folder" '<gsl/' ;;
        esac
        [ "$folder" = ir/import ] || includes "$folder" '<(jansson|protobuf-c|onnx|expat)'
        includes "$folder" '<(igraph|sqlite3|gsl|jansson|protobuf-c|onnx|expat|mpi)' | grep -E '^[^:]*\.h:'
    done
)
[ -z "$offences" ] && exit 0
echo "includes against the direction of the rooms:"
echo "$offences"
exit 1

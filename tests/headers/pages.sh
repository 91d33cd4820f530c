#!/bin/sh
# pages.sh ROOT: holds the pages of the rooms to the folders.
#
#   Every folder with code under ir, sim, search and tools has a README.md. The first cells of its
#   tables name every .c, .h and .def file of the folder, by name or by pattern, and no file of
#   these kinds that the folder lacks.
#   A folder holds at most 45 files of code.
#   The pages of ir, sim and search follow one program: the files of the numbered rows exist, and
#   so do the functions that the rows say to read.
#   CONTRIBUTING.md's table of rooms links the pages of exactly these folders, and of the four rooms.
#
# Prints each offence, exits 1 if any.
cd "$1" || exit 2
most=45
code='\.(c|h|def)$'

matches() { # NAME PATTERN…: does a pattern fit the name?
    name=$1
    shift
    for pattern; do
        # shellcheck disable=SC2254 # a pattern is meant
        case $name in $pattern) return 0 ;; esac
    done
    return 1
}

folders=$(find ir sim search tools -type f | grep -E "$code" | sed 's,/[^/]*$,,' | sort -u)
offences=$(
    set -f # patterns stay patterns
    for folder in $folders; do
        files=$(find "$folder" -maxdepth 1 -type f | sed 's,.*/,,' | grep -E "$code" | sort)
        n=$(echo "$files" | wc -l)
        [ "$n" -le $most ] || echo "$folder: $n files of code, more than $most"
        if [ ! -f "$folder/README.md" ]; then
            echo "$folder: no README.md"
            continue
        fi
        # shellcheck disable=SC2016 # the backticks of a page
        named=$(grep '^|' "$folder/README.md" | cut -d'|' -f2 | grep -oE '`[^` /]*\.(c|h|def)`' | tr -d '`')
        # shellcheck disable=SC2086 # one word a name
        for file in $files; do
            matches "$file" $named || echo "$folder/README.md: no table names $file"
        done
        for pattern in $named; do
            found=
            for file in $files; do matches "$file" "$pattern" && found=yes; done
            [ "$found" ] || echo "$folder/README.md: there is no file $pattern"
        done
    done

    for room in ir sim search; do
        steps=$(grep '^| [0-9]' $room/README.md)
        # shellcheck disable=SC2016
        for file in $(echo "$steps" | cut -d'|' -f3 | grep -oE '`[^`]*`' | tr -d '`'); do
            [ -f "$room/$file" ] || echo "$room/README.md: there is no file $file to read"
        done
        echo "$steps" | while IFS='|' read -r _ _ files functions _; do
            # shellcheck disable=SC2016
            for function in $(echo "$functions" | grep -oE '`[a-z][a-z0-9_]*`' | tr -d '`'); do
                defined=
                for file in $(echo "$files" | grep -oE '`[^`]*`' | tr -d '`'); do
                    grep -qE "^[a-z][^;=]*\\b$function\\(" "$room/$file" && defined=yes
                done
                [ "$defined" ] ||
                    echo "$room/README.md: the row's files do not define $function"
            done
        done
    done

    linked=$(sed -n '/^## Rooms/,/^## [^R]/p' CONTRIBUTING.md | grep '^|' |
        grep -oE '\((ir|sim|search|tools)[^)]*/README\.md\)' | sed 's,^(,,; s,/README.md)$,,' | sort)
    wanted=$(printf '%s\n' ir sim search tools "$folders" | sort -u)
    for folder in $wanted; do
        echo "$linked" | grep -qx "$folder" || echo "CONTRIBUTING.md: the table of rooms lacks $folder"
    done
    for folder in $linked; do
        echo "$wanted" | grep -qx "$folder" || echo "CONTRIBUTING.md: the table of rooms has $folder, which holds no code"
    done
    echo "$linked" | uniq -d | sed 's,^,CONTRIBUTING.md: the table of rooms has twice ,'
)
[ -z "$offences" ] && exit 0
echo "$offences"
exit 1

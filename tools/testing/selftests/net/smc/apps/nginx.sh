#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 900
# nginx with wrk and curl, and haproxy between them: pages of all sizes, with and without sendfile(2),
# with and without connections that stay.

. "${LIB%/*}/apps/apps.bash"

# wrk_says NAME END URL OPTION...: load for some seconds, all of it answered, and well.
wrk_says() {
	local name=$1 end=$2 url=$3
	shift 3
	at "$end" wrk -t 2 -c 16 -d "$(scale 4 30)" --timeout 20 "$@" "$url" >/tmp/wrk 2>&1
	check "$name: wrk ends well" [ $? = 0 ]
	sed 's/^/# /' /tmp/wrk
	check "$name: it got answers" grep -q '^ *[1-9][0-9]* requests in' /tmp/wrk
	check_not "$name: errors" grep -E 'Socket errors|Non-2xx' /tmp/wrk
}

# page NAME END URL: comes as it is in the file.
pages() {
	local name=$1 end=$2 url=$3 file
	for file in empty small large huge; do
		check "$name: $file page" same_sum "/tmp/www/$file" at "$end" curl -sSf "$url/$file"
	done
	check "$name: a part of a page" same_sum /tmp/www/part at "$end" curl -sSf -r 1000000-1999999 "$url/huge"
	check "$name: several pages by one connection" same_sum /tmp/www/all \
		at "$end" curl -sSf "$url/small" "$url/large" "$url/huge"
}

nginx_conf() {
	cat <<-CONF
		user root;
		worker_processes 2;
		pid /tmp/nginx.pid;
		error_log /tmp/nginx.error warn;
		events { worker_connections 256; }
		http {
			access_log off;
			client_body_temp_path /tmp/nginx.body;
			proxy_temp_path /tmp/nginx.proxy;
			fastcgi_temp_path /tmp/nginx.fastcgi;
			uwsgi_temp_path /tmp/nginx.uwsgi;
			scgi_temp_path /tmp/nginx.scgi;
			keepalive_requests 100000;
			root /tmp/www;
			server { listen $IP_B:80; sendfile on; tcp_nopush on; }
			server { listen $IP_B:81; sendfile off; }
			server { listen $IP_B:82; sendfile on; keepalive_timeout 0; }
		}
	CONF
}

haproxy_conf() {
	cat <<-CONF
		global
			maxconn 256
		defaults
			mode http
			timeout connect 20s
			timeout client 60s
			timeout server 60s
		listen http
			bind $IP_A:8080
			server nginx $IP_B:80 check inter 1s
		listen tcp
			mode tcp
			option splice-auto
			bind $IP_A:8081
			server nginx $IP_B:80
	CONF
}

mkdir /tmp/www
: >/tmp/www/empty
random_file /tmp/www/small 700
random_file /tmp/www/large 100000
random_file /tmp/www/huge 5000000
tail -c +1000001 /tmp/www/huge | head -c 1000000 >/tmp/www/part
cat /tmp/www/small /tmp/www/large /tmp/www/huge >/tmp/www/all
nginx_conf >/tmp/nginx.conf
haproxy_conf >/tmp/haproxy.conf

up_apps
mark
serve nginx b 80 nginx -c /tmp/nginx.conf -e /tmp/nginx.error -g 'daemon off;'
pages sendfile a "http://$IP_B"
pages "no sendfile" a "http://$IP_B:81"
pages "no keep-alive" a "http://$IP_B:82"
wrk_says "small pages" a "http://$IP_B/small"
wrk_says "large pages" a "http://$IP_B/large"
wrk_says "large pages without sendfile" a "http://$IP_B:81/large"
wrk_says "a connection for each page" a "http://$IP_B:82/small"
went_by_smc nginx $((40 << 20))

mark
serve haproxy a 8080 haproxy -db -f /tmp/haproxy.conf
pages haproxy b "http://$IP_A:8080"
pages "haproxy, spliced" b "http://$IP_A:8081"
wrk_says "haproxy, small pages" b "http://$IP_A:8080/small"
wrk_says "haproxy, large pages" b "http://$IP_A:8080/large"
wrk_says "haproxy, spliced, large pages" b "http://$IP_A:8081/large"
went_by_smc haproxy $((40 << 20))
sed 's/^/# nginx: /' /tmp/nginx.error
check "nginx logs no error" [ ! -s /tmp/nginx.error ]
over

-- What the example needs, in the database of both services. Run by psql; does nothing if it is there.
SELECT to_regclass('shop.outbox') IS NULL AS is_new
\gset
\if :is_new
ALTER SYSTEM SET postbox.project_id = 'postbox-dev';
SELECT pg_reload_conf();
BEGIN;
CREATE EXTENSION postbox;
CREATE ROLE reader LOGIN PASSWORD 'change-me-too';
CREATE ROLE monitor LOGIN PASSWORD 'change-me-three' IN ROLE pg_monitor;

CREATE SCHEMA shop;
SELECT postbox.create_outbox('shop.outbox');
SELECT postbox.create_publication('orders', 'shop.outbox', 'shop.order.events');

CREATE SCHEMA shop_read;
CREATE TABLE shop_read.orders (order_id text PRIMARY KEY, total numeric, version bigint NOT NULL);
SELECT postbox.create_inbox('shop_read.inbox');
SELECT postbox.create_subscription('orders', 'shop_read.inbox', 'shop.order.events.shop-reader');
SELECT postbox.create_projection('shop_read.inbox', ARRAY['order.created', 'order.changed'], 'shop_read.orders');
GRANT INSERT ON shop_read.inbox TO reader;
COMMIT;
\endif
